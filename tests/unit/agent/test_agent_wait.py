"""Timeouts of the agent's poll."""

import select
import socket
from types import SimpleNamespace

import pytest

from echelon.agent.loop import Agent
from echelon.log_files import MERGE_SECONDS, NodeIndex
from echelon.wire.channel import Channel


@pytest.fixture
def waited(monkeypatch):
    """The timeouts of all polls, in milliseconds."""
    timeouts = []
    poller = SimpleNamespace(register=lambda *_: None, poll=lambda timeout: timeouts.append(timeout) or [])
    monkeypatch.setattr(select, "poll", lambda: poller)
    return timeouts


def test_agent_wakes_to_write_a_held_line_of_the_index(tmp_path, waited):
    index = NodeIndex(tmp_path / "a.index", clock=lambda: 0.0)
    left, right = socket.socketpair()
    ranks = SimpleNamespace(
        living_members=list, starter=SimpleNamespace(has_orders=False, link=right), report_fds=list, node_log=index
    )
    agent = Agent.__new__(Agent)
    agent._ranks, agent._channel, agent._collection, agent._stopping = ranks, Channel.from_socket(left), None, None
    agent._check = None
    log = index.rank_log(tmp_path / "rank-0.out", width=1)
    with left, right:
        for data in (b"written", b"held"):
            log.write(data)
            agent._wait(right.fileno(), float("inf"))
    assert waited == [float("inf"), MERGE_SECONDS * 1000]
    log.close()
    index.close()


def test_cpu_time_is_sampled_without_a_hang_timeout():
    agent = Agent.__new__(Agent)
    agent._job = SimpleNamespace(policies=SimpleNamespace(hang_timeout=None))
    agent._next_cpu = 0.0
    assert [agent._is_cpu_due(), agent._is_cpu_due()] == [True, False]
