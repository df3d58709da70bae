"""Log files as they grow, in whole lines."""

import pytest

from echelon.log_files import NodeIndex, RankLogFile, list_parts
from echelon.observe.logs import LogTails, NodeTail, RankTail, Tail, rank_logs
from echelon.run_dir import RunDir


def append(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def test_missing_file_has_no_new_lines(log):
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


def test_bytes_that_are_not_text_are_kept(log):
    append(log, b"\xff\x00\n")
    assert Tail(log).read() == b"\xff\x00\n"


def write(attempt, host, *pieces, most=0, width=1):
    """Pieces of (rank, bytes) as an agent writes them; None ends a rank's output."""
    attempt.path.mkdir(parents=True, exist_ok=True)
    index = NodeIndex(attempt.node_index(host))
    for rank, data in pieces:
        log = RankLogFile(attempt.rank_log(rank), index, width=width, max_bytes=most)
        log.write(data) if data is not None else log.end()
        log.close()
    index.close()


@pytest.fixture
def run_dir(tmp_path):
    run = RunDir(tmp_path / "run")
    write(run.attempt(0), "a", (0, b"a0\n"))
    write(run.attempt(0), "b", (1, b"b0\n"))
    write(run.attempt(1), "a", (0, b"a1\n"))
    return run


def test_all_nodes_of_all_attempts_are_read_and_no_rank_twice(run_dir):
    assert LogTails(run_dir).read() == b"[0] a0\n[1] b0\n[0] a1\n"


def test_earlier_attempts_can_be_left_out(run_dir):
    assert LogTails(run_dir, 1).read() == b"[0] a1\n"


def test_logs_that_appear_later_are_read_too(run_dir):
    tails = LogTails(run_dir)
    tails.read()
    write(run_dir.attempt(2), "c", (0, b"new\nhalf"))
    assert tails.read() == b"[0] new\n"
    assert tails.read(to_the_end=True) == b"[0] half\n"


@pytest.mark.parametrize(
    ("rank", "node", "names"),
    [
        (None, None, ["attempt-0/rank-0.out", "attempt-0/rank-1.out", "attempt-1/rank-0.out"]),
        (0, None, ["attempt-0/rank-0.out", "attempt-1/rank-0.out"]),
        (None, "b", ["attempt-0/rank-1.out"]),
        (None, "a", ["attempt-0/rank-0.out", "attempt-1/rank-0.out"]),
        (7, None, []),
        (None, "nowhere", []),
    ],
)
def test_requested_files_are_listed(run_dir, rank, node, names):
    found = rank_logs(run_dir.attempts(), rank=rank, node=node)
    assert [str(path.relative_to(run_dir.path)) for path in found] == names


def test_order_of_lines_is_that_of_their_ends(run_dir):
    attempt = run_dir.attempt(3)
    write(attempt, "a", (10, b"be"), (9, b"one\r"), (10, b"gin\nlast"), (10, None), (9, b"\ntwo\n"), width=2)
    tail = NodeTail(attempt.node_index("a"))
    assert tail.read() == b"[10] begin\n[10] last\n[ 9] one\n[ 9] two\n"
    assert tail.read(to_the_end=True) == b""


def test_bytes_that_come_after_their_index_are_waited_for(run_dir):
    attempt = run_dir.attempt(0)
    with attempt.node_index("late").open("ab") as index:
        index.write(b"5 0 3\n|[echelon] word\nnonsense\n5 3")
    tail = NodeTail(attempt.node_index("late"))
    assert tail.read() == b""
    append(attempt.rank_log(5), b"hi\n")
    assert tail.read() == b"[5] hi\n[echelon] word\n"


def test_long_log_keeps_its_beginning_and_its_end(run_dir):
    attempt = run_dir.attempt(4)
    lines = [f"line {number:03}\n".encode() for number in range(100)]
    write(attempt, "a", *((0, line) for line in lines), most=200)
    parts = list_parts(attempt.rank_log(0))
    assert sum(path.stat().st_size for _, path in parts) <= 200
    assert parts[0] == (0, attempt.rank_log(0))
    rank, shown = RankTail(attempt, 0), b""
    while data := rank.read(7):
        shown += data
    assert shown.startswith(b"line 000\n")
    assert shown.endswith(b"line 099\n")
    assert b"of output dropped here; a larger --log-max keeps more)\n" in shown
    node = NodeTail(attempt.node_index("a")).read(to_the_end=True)
    assert node.startswith(b"[0] line 000\n")
    assert node.endswith(b"[0] line 099\n")
    assert node.count(b"dropped here") == 1


def test_a_reached_log_limit_is_reported(tmp_path):
    index = NodeIndex(tmp_path / "a.index")
    log = RankLogFile(tmp_path / "rank-0.out", index, width=1, max_bytes=40)
    log.write(b"x" * 40)
    assert log.problem is None, "nothing is dropped yet"
    log.write(b"x")
    assert log.problem.strerror == "rank-0.out is longer than --log-max; its middle is dropped"
    log.close()
    index.close()


def test_large_output_is_read_in_pieces(run_dir):
    attempt = run_dir.attempt(5)
    write(attempt, "a", *((0, b"x" * 99 + b"\n") for _ in range(50)))
    tail, shown = NodeTail(attempt.node_index("a")), []
    while data := tail.read(to_the_end=True, most=1000):
        shown.append(data)
    assert len(shown) == 5
    assert b"".join(shown) == (b"[0] " + b"x" * 99 + b"\n") * 50
