"""Files of an attempt, written in its folder or sent there over a channel."""

import base64
import os
import socket
from pathlib import Path

import pytest

from echelon import log_files
from echelon.attempt_dir import AttemptDir
from echelon.log_files import list_parts
from echelon.observe.logs import NodeTail
from echelon.wire.attempt_files import PIECE_BYTES, ChannelSinks, ReceivedFiles, RunDirSinks
from echelon.wire.channel import Channel
from echelon.wire.messages import FilePiece, from_wire


@pytest.fixture
def attempt(tmp_path):
    (tmp_path / "attempt-0").mkdir()
    return AttemptDir(tmp_path / "attempt-0", 0)


@pytest.fixture
def sent(attempt):
    """Sinks whose other end is the archive of the attempt; calling the second brings over what is under way."""
    left, right = socket.socketpair()
    sender, receiver, archive = Channel.from_socket(left), Channel.from_socket(right), ReceivedFiles(attempt)

    def arrive():
        while (messages := receiver.receive()) or sender.unsent_bytes:
            assert [archive.write_file(from_wire(wire)) for wire in messages] == [None] * len(messages)
            sender.flush()
        archive.flush()

    with left, right:
        yield ChannelSinks(sender), arrive


def test_sent_data_equals_written_data(attempt, sent):
    sinks, arrive = sent
    log = sinks.log(attempt.rank_log(3))
    log.write(b"one\n\xff")
    log.write(b"two\n")
    sinks.write_file(attempt.node_env("gpu1"), b"A='1'\n")
    sinks.write_file(attempt.node_env("gpu1"), b"A='2'\n")
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
    log = RunDirSinks().log(attempt.rank_stacks(0, 1))
    log.write(b"x")
    log.close()
    RunDirSinks().write_file(attempt.node_env("a"), b"y")
    assert (attempt.rank_stacks(0, 1).read_bytes(), attempt.node_env("a").read_bytes()) == (b"x", b"y")


@pytest.mark.parametrize(
    "name", ["../x.out", "/tmp/x.out", "exit_code", "error.json", ".out", ".x.out", "", "a/b.out", "x.out\0"]
)
def test_agents_write_only_their_files(attempt, name):
    piece = FilePiece(file=name, data=base64.b64encode(b"x").decode())
    archive = ReceivedFiles(attempt)
    assert "not a file of an attempt" in archive.write_file(piece)
    assert archive.write_file(piece) is None, "said once"
    assert list(attempt.path.iterdir()) == []


def test_invalid_base64_is_dropped_and_reported(attempt):
    assert "output was lost" in ReceivedFiles(attempt).write_file(FilePiece(file="rank-0.out", data="x"))


def test_output_over_a_channel_is_indexed_by_the_supervisor(attempt, sent):
    sinks, arrive = sent
    index = sinks.index(attempt.node_index("gpu1"))
    one, two = (index.rank_log(attempt.rank_log(rank), width=1) for rank in (0, 1))
    one.write(b"a\nb")
    two.write(b"x\n")
    index.write(b"|[torchrun] word\n")
    one.write(b"c")
    one.end()
    again = index.rank_log(attempt.rank_log(0), width=1)  # of the next generation, or of another agent
    again.write(b"d\n")
    arrive()
    assert attempt.rank_log(0).read_bytes() == b"a\nbcd\n"
    shown = NodeTail(attempt.node_index("gpu1")).read()
    assert shown == b"[0] a\n[1] x\n[torchrun] word\n[0] bc\n[0] d\n"


def test_index_outside_of_the_attempt_is_refused(attempt):
    piece = FilePiece(file="rank-0.out", data="", index="../x.index")
    assert "not a file of an attempt" in ReceivedFiles(attempt).write_file(piece)


def piece(data, rank=0):
    encoded = base64.b64encode(data).decode()
    return FilePiece(file=f"rank-{rank}.out", data=encoded, index="gpu1.index", width=1)


def test_archive_merges_pieces_and_lists_the_folder_once(attempt, monkeypatch):
    listed = []
    monkeypatch.setattr(log_files, "list_parts", lambda path: (listed.append(path), list_parts(path))[1])
    archive = ReceivedFiles(attempt)
    for number in range(1000):
        assert archive.write_file(piece(b"%d\n" % number)) is None
    archive.flush()
    assert len(listed) == 2, "of the log and of the index"
    shown = NodeTail(attempt.node_index("gpu1")).read()
    assert shown == b"".join(b"[0] %d\n" % number for number in range(1000))
    assert attempt.node_index("gpu1").stat().st_size < 1000


def test_archive_bounds_lines_of_launchers(attempt):
    archive = ReceivedFiles(attempt, max_bytes=1000)
    for number in range(1000):
        data = base64.b64encode(b"|[torchrun] line %d\n" % number).decode()
        archive.write_file(FilePiece(file="gpu1.index", data=data))
    assert sum(path.stat().st_size for path in attempt.path.iterdir()) <= 1000
    shown = NodeTail(attempt.node_index("gpu1")).read(to_the_end=True)
    assert shown.startswith(b"[torchrun] line 0\n")
    assert shown.endswith(b"[torchrun] line 999\n")


def test_archive_keeps_no_file_open(attempt):
    opened = Path("/proc/self/fd")
    before = len(list(opened.iterdir()))
    archive = ReceivedFiles(attempt)
    for rank in range(20):
        archive.write_file(piece(b"x\n", rank))
    archive.flush_if_due()
    assert len(list(opened.iterdir())) == before
