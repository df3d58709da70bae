"""A rank's output is copied unchanged. A launcher's output is split into tagged lines."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.log_files import NodeIndex, RankLogFile
from echelon.observe.logs import NodeTail
from echelon.wire.output import LONGEST_LINE_BYTES, LauncherOutput, LineSplitter, LogFile, RankOutput


def split(*chunks):
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.finish()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"on", b"e\ntw", b"o\n"], [b"one", b"two"]),
        ([b"one\r\ntwo\r\n"], [b"one", b"two"]),
        ([b"one\r", b"\ntwo\n"], [b"one", b"two"]),
        ([b" 10%\r 20%\r 30%\n"], [b" 10%", b" 20%", b" 30%"]),
        ([b" 10%\r", b" 20%\r"], [b" 10%", b" 20%"]),
        ([b"no newline"], [b"no newline"]),
        ([b"\n\n"], [b"", b""]),
        ([], []),
    ],
)
def test_bytes_become_lines(chunks, lines):
    assert split(*chunks) == lines


def test_an_unfinished_line_waits_for_its_end():
    splitter = LineSplitter()
    assert splitter.feed(b"half") == []
    assert splitter.feed(b" done\n") == [b"half done"]


def test_a_progress_bar_is_seen_before_its_newline():
    splitter = LineSplitter()
    splitter.feed(b"10%")
    assert splitter.feed(b"\r20%") == [b"10%"]


def test_a_line_without_end_is_cut_so_that_memory_stays_small():
    lines = split(*[b"x" * 1000] * 200)
    assert b"".join(lines) == b"x" * 200_000
    assert max(map(len, lines)) == LONGEST_LINE_BYTES


@given(st.lists(st.text(alphabet="ab\r\n", max_size=8).map(str.encode), max_size=8))
def test_output_does_not_depend_on_chunk_borders(chunks):
    assert split(*chunks) == split(b"".join(chunks))


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_nothing_but_line_ends_is_lost(chunks):
    def without_ends(data):
        return data.replace(b"\r", b"").replace(b"\n", b"")

    assert b"".join(split(*chunks)) == without_ends(b"".join(chunks))


def test_a_log_is_private_and_is_added_to(tmp_path):
    path = tmp_path / "log"
    for data in (b"first\n", b"second\n"):
        log = LogFile(path)
        log.write(data)
        log.close()
    assert path.read_bytes() == b"first\nsecond\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_noticed_and_stops_nothing(tmp_path):
    full = tmp_path / "log"
    full.symlink_to("/dev/full")
    log = LogFile(full)
    log.write(b"lost")
    log.write(b"too")
    log.close()
    assert "space" in log.problem.strerror


@pytest.fixture
def rank_output(tmp_path):
    read, write = os.pipe()
    node_log = NodeIndex(tmp_path / "node.index")
    output = RankOutput(read, RankLogFile(tmp_path / "rank-3.out", node_log, width=2, max_bytes=0))
    with os.fdopen(write, "wb", buffering=0) as pipe:
        yield output, pipe, tmp_path
    node_log.close()


def test_bytes_are_kept_once_and_their_order_in_the_index(rank_output):
    output, pipe, folder = rank_output
    pipe.write(b"10%\r20%\ndone")
    assert output.drain()
    output.close()
    assert (folder / "rank-3.out").read_bytes() == b"10%\r20%\ndone"
    assert (folder / "node.index").read_bytes() == b"03 0 12\n03 12 0\n"
    assert NodeTail(folder / "node.index").read() == b"[ 3] 10%\n[ 3] 20%\n[ 3] done\n"
    assert output.lines == 2


def test_a_pipe_with_nothing_in_it_does_not_block(rank_output):
    output, _, _ = rank_output
    assert output.drain()
    assert output.lines == 0
    output.close()


def test_end_of_the_pipe_is_reported(rank_output):
    output, pipe, folder = rank_output
    pipe.write(b"last\n")
    pipe.close()
    assert not output.drain()
    output.close()
    assert (folder / "rank-3.out").read_bytes() == b"last\n"


def test_last_output_of_a_rank_is_in_the_index_at_once(rank_output):
    output, pipe, folder = rank_output
    for line in (b"one\n", b"two\n", b"three\n"):
        pipe.write(line)
        output.drain()
    output.drain_available()
    assert NodeTail(folder / "node.index").read() == b"[ 3] one\n[ 3] two\n[ 3] three\n"
    output.close()


def test_one_rank_that_writes_much_does_not_keep_the_reader(rank_output):
    output, pipe, folder = rank_output
    pipe.write(b"x" * 4000)
    assert output.drain(max_bytes=1)
    pipe.write(b"y" * 10)
    assert output.drain()
    output.close()
    assert (folder / "rank-3.out").stat().st_size == 4010


@pytest.mark.parametrize(
    ("written", "last"),
    [
        ([], ()),
        ([b"one\ntw", b"o\n"], ("one", "two")),
        ([b"10%\r20%\n"], ("10%", "20%")),
        ([b"no end"], ("no end",)),
        ([b"%d\n" % number for number in range(50)], tuple(map(str, range(30, 50)))),
        ([b"x" * 9000 + b"\n", b"y" * 9000 + b"\n", b"end\n"], ("y" * 9000, "end")),
        ([b"x" * 20_000], ("x" * (1 << 14),)),
    ],
    ids=["nothing", "two chunks", "progress bar", "no newline", "many lines", "long lines", "one long line"],
)
def test_the_last_lines_of_a_rank_are_kept(rank_output, written, last):
    output, pipe, _ = rank_output
    for data in written:
        pipe.write(data)
        output.drain()
    assert output.last_lines() == last
    output.close()


@pytest.mark.parametrize(
    ("said", "last_meaningful_line"),
    [
        (b"", ""),
        (b"one\ntwo\n", "two"),
        (b"one\ntwo", "two"),
        (b"usage: x\n------\n  x: error: no such option \n------\n\n", "x: error: no such option"),
        (b"\xff\n", "\ufffd"),
        (b"===\n---\n", ""),
    ],
)
def test_launcher_output_is_logged_and_its_last_line_kept(tmp_path, said, last_meaningful_line):
    read, write = os.pipe()
    node_log = LogFile(tmp_path / "node.out")
    output = LauncherOutput(read, "torchrun", node_log)
    os.write(write, said)
    output.drain()
    assert not output.ended
    os.close(write)
    output.drain()
    assert output.ended
    assert output.last_meaningful_line() == last_meaningful_line
    output.close()
    node_log.close()
    lines = [b"|[torchrun] " + line + b"\n" for line in said.removesuffix(b"\n").split(b"\n")] if said else []
    assert (tmp_path / "node.out").read_bytes() == b"".join(lines)
