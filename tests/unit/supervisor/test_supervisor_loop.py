"""The supervisor's loop with a simulated agent."""

import os
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from echelon.backends.hosts import Host
from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.supervisor.journal import Journal
from echelon.supervisor.loop import Supervisor
from echelon.supervisor.state import Ending, Rules
from echelon.wire.messages import CollectEvidence, EvidenceCollected, Exit, Exited, Heartbeat, Hello, Sample, Stopped
from echelon.wire.reports import PortBound

HANG_SECONDS = 0.5
IDLE = Sample(rank=0, lines=0, cpu_seconds=0.0, stopped=False)
STARTED = (
    (Hello(node=0, host="n1", address="10.0.0.1", pid=1, node_dir="/tmp/x"),),
    (PortBound(generation=0, port=1, store_is_up=True),),
    (Heartbeat(generation=0, samples=(IDLE,)),),
)
FINISHED = (Exited(generation=0, exit=Exit(rank=0, host="n1", code=0, time=0.0)), Stopped(generation=0))


class OneAgent:
    """Stands in for all agents: it sends the next messages of its script in each turn of the supervisor's loop."""

    def __init__(self, *turns):
        self.turns = list(turns)
        self.hosts = SimpleNamespace(
            all=[Host(name="n1")],
            reserve_seconds=0.0,
            early_notice_seconds=0.0,
            container_removal_seconds=0.0,
            start_query=lambda: None,
            end_late_agents=lambda: None,
        )
        self.agents = {0: SimpleNamespace(address="10.0.0.1")}

    def poll_events(self):
        """Called just before the supervisor waits, which is when a freeze usually comes."""
        if self.turns and self.turns[0] == "freeze":
            self.turns[0] = ()
            time.sleep(2 * HANG_SECONDS)
        return {}

    def receive(self, _readable):
        return [(0, message) for message in (self.turns.pop(0) if self.turns else ())], []

    def connected_nodes(self):
        return []

    def failed_starts(self):
        return []

    def lost_agents(self, _seconds):
        return []

    def __getattr__(self, name):
        return lambda *_: None


@pytest.fixture
def wake():
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends[0]
    for end in ends:
        os.close(end)


def test_time_while_the_machine_was_frozen_is_not_a_hang(tmp_path, wake):
    """Without a SIGCONT, as by docker pause."""
    policies = Policies(heartbeat=timedelta(seconds=0.3), hang_timeout=timedelta(seconds=HANG_SECONDS))
    agents = OneAgent(*STARTED, "freeze", (), FINISHED)
    assert supervise(tmp_path, wake, agents, policies).ending is Ending.SUCCEEDED


class SimulatedTime:
    """A clock that the test moves, in place of the module `time` of the supervisor's loop."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class HangingRanks(OneAgent):
    """An agent whose rank reports a step per second, then waits in a collective for ever."""

    def __init__(self, clock, steps):
        super().__init__(*STARTED)
        self.clock, self.steps, self.step, self.began = clock, steps, 0, None
        self.sent = []

    def poll_events(self):
        self.clock.now += 1.0  # before the supervisor looks how long it may wait
        return {}

    def receive(self, _readable):
        if self.turns:
            return super().receive(_readable)
        if any(isinstance(message, CollectEvidence) for message in self.sent):
            return [(0, message) for message in (EvidenceCollected(generation=0), *FINISHED)], []
        self.step = min(self.step + 1, self.steps)
        if self.step == self.steps and self.began is None:
            self.began = self.clock.now
        sample = replace(IDLE, step=self.step, waits_in_collective=self.step == self.steps)
        return [(0, Heartbeat(generation=0, samples=(sample,)))], []

    def send(self, _node, message):
        self.sent.append(message)


@pytest.mark.parametrize(
    ("hang_timeout", "seconds"), [(None, 60), (timedelta(seconds=20), 20)], ids=["learned", "explicit"]
)
def test_hang_is_found_with_and_without_hang_timeout(tmp_path, wake, monkeypatch, hang_timeout, seconds):
    clock = SimulatedTime()
    monkeypatch.setattr("echelon.supervisor.loop.time", clock)
    agents = HangingRanks(clock, 30)
    outcome = supervise(tmp_path, wake, agents, Policies(hang_timeout=hang_timeout))
    assert outcome.ending is Ending.FAILED
    assert clock.now - agents.began == pytest.approx(seconds, abs=4)
    learned = " (learned from steps of 1 s; --hang-timeout sets it)" if hang_timeout is None else ""
    assert outcome.fault.sentence == f"no progress for {seconds} s{learned}: no new step from rank 0"


def supervise(folder, wake, agents, policies):
    (folder / "attempt-0").mkdir()
    job = Job(
        name="x",
        script=Script(kind=ScriptKind.FILE, target="x.py"),
        cwd="/",
        python="python3",
        scheduler="local",
        resources=Resources(nodes=1, procs_per_node=1),
        policies=policies,
    )
    journal, rules = Journal(RunDir(folder), 0), Rules(nodes=1, min_nodes=1)
    return Supervisor(job=job, run_id="x", attempt=0, rules=rules, agents=agents, journal=journal).run(wake)
