"""Files of an attempt, written in its folder or sent there over a channel."""

import base64
import os
import socket

import pytest

from echelon.node.channel import Channel
from echelon.node.messages import Written, from_wire
from echelon.node.sinks import PIECE_BYTES, Archive, InRunDirectory, OverChannel
from echelon.run_dir import AttemptDir


@pytest.fixture
def attempt(tmp_path):
    (tmp_path / "attempt-0").mkdir()
    return AttemptDir(tmp_path / "attempt-0", 0)


@pytest.fixture
def sent(attempt):
    """Sinks whose other end is the archive of the attempt; calling the second brings over what is under way."""
    left, right = socket.socketpair()
    sender, receiver, archive = Channel.over(left), Channel.over(right), Archive(attempt)

    def arrive():
        while (messages := receiver.receive()) or sender.unsent_bytes:
            assert [archive.keep(from_wire(wire)) for wire in messages] == [None] * len(messages)
            sender.flush()

    with left, right:
        yield OverChannel(sender), arrive


def test_what_is_sent_is_what_would_have_been_written(attempt, sent):
    sinks, arrive = sent
    log = sinks.log(attempt.rank_log(3))
    log.write(b"one\n\xff")
    log.write(b"two\n")
    sinks.keep(attempt.node_env("gpu1"), b"A='1'\n")
    sinks.keep(attempt.node_env("gpu1"), b"A='2'\n")
    log.close()
    arrive()
    assert attempt.rank_log(3).read_bytes() == b"one\n\xfftwo\n"
    assert attempt.node_env("gpu1").read_bytes() == b"A='2'\n"
    assert attempt.rank_log(3).stat().st_mode & 0o777 == 0o600


def test_a_large_piece_is_sent_in_several(attempt, sent):
    sinks, arrive = sent
    data = os.urandom(3 * PIECE_BYTES + 1)
    sinks.log(attempt.rank_log(0)).write(data)
    arrive()
    assert attempt.rank_log(0).read_bytes() == data


def test_in_the_run_directory_files_are_written_directly(attempt):
    log = InRunDirectory().log(attempt.rank_stacks(0))
    log.write(b"x")
    log.close()
    InRunDirectory().keep(attempt.node_env("a"), b"y")
    assert (attempt.rank_stacks(0).read_bytes(), attempt.node_env("a").read_bytes()) == (b"x", b"y")


@pytest.mark.parametrize(
    "name", ["../x.out", "/tmp/x.out", "exit_code", "error.json", ".out", ".x.out", "", "a/b.out", "x.out\0"]
)
def test_no_agent_writes_anything_but_its_files(attempt, name):
    written = Written(file=name, data=base64.b64encode(b"x").decode())
    archive = Archive(attempt)
    assert "no file of an attempt" in archive.keep(written)
    assert archive.keep(written) is None, "said once"
    assert list(attempt.path.iterdir()) == []


def test_what_is_no_base64_is_lost_and_said(attempt):
    assert "output was lost" in Archive(attempt).keep(Written(file="rank-0.out", data="x"))
