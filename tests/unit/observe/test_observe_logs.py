"""Log files as they grow, in whole lines."""

import pytest

from echelon.observe.logs import LogTails, Tail, chosen_logs
from echelon.run_dir import RunDir


def append(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def test_a_file_that_is_not_there_yet_has_nothing_new(log):
    tail = Tail(log)
    assert tail.read() == b""
    append(log, b"first\n")
    assert tail.read() == b"first\n"


def test_only_what_is_new_is_read(log):
    tail = Tail(log)
    append(log, b"one\n")
    assert tail.read() == b"one\n"
    assert tail.read() == b""
    append(log, b"two\nthree\n")
    assert tail.read() == b"two\nthree\n"


def test_an_unfinished_line_is_left_for_later(log):
    tail = Tail(log)
    append(log, b"whole\nha")
    assert tail.read() == b"whole\n"
    append(log, b"lf\n")
    assert tail.read() == b"half\n"


def test_at_the_end_the_unfinished_line_is_read_too(log):
    tail = Tail(log)
    append(log, b"whole\nhalf")
    assert tail.read() == b"whole\n"
    assert tail.read(to_the_end=True) == b"half"
    assert tail.read(to_the_end=True) == b""


def test_bytes_that_are_no_text_are_kept(log):
    append(log, b"\xff\x00\n")
    assert Tail(log).read() == b"\xff\x00\n"


@pytest.fixture
def run_dir(tmp_path):
    run = RunDir(tmp_path / "run")
    append(run.attempt(0).node_log("a"), b"[0] a0\n")
    append(run.attempt(0).node_log("b"), b"[1] b0\n")
    append(run.attempt(0).rank_log(0), b"a0\n")
    append(run.attempt(1).node_log("a"), b"[0] a1\n")
    return run


def test_all_nodes_of_all_attempts_are_read_and_no_rank_twice(run_dir):
    assert LogTails(run_dir).read() == b"[0] a0\n[1] b0\n[0] a1\n"


def test_earlier_attempts_can_be_left_out(run_dir):
    assert LogTails(run_dir, 1).read() == b"[0] a1\n"


def test_logs_that_appear_later_are_read_too(run_dir):
    tails = LogTails(run_dir)
    tails.read()
    append(run_dir.attempt(2).node_log("c"), b"new\nhalf")
    assert tails.read() == b"new\n"
    assert tails.read(to_the_end=True) == b"half"


@pytest.mark.parametrize(
    ("rank", "node", "names"),
    [
        (None, None, ["attempt-0/a.out", "attempt-0/b.out", "attempt-1/a.out"]),
        (0, None, ["attempt-0/rank-0.out"]),
        (None, "b", ["attempt-0/b.out"]),
        (None, "a", ["attempt-0/a.out", "attempt-1/a.out"]),
        (7, None, []),
        (None, "nowhere", []),
    ],
)
def test_the_logs_that_were_asked_for_are_chosen(run_dir, rank, node, names):
    found = chosen_logs(run_dir.attempts(), rank=rank, node=node)
    assert [str(path.relative_to(run_dir.path)) for path in found] == names
