"""The index of a node: small, bounded, and enough to show all output in its order."""

import math
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from echelon.attempt_dir import AttemptDir
from echelon.log_files import MAX_MERGED_BYTES, MERGE_SECONDS, NodeIndex, list_parts, parse_piece
from echelon.observe.logs import NodeTail, RankTail, rank_logs
from echelon.wire.output import LauncherOutput


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def attempt(tmp_path):
    return AttemptDir(tmp_path, 0)


def size_of(path):
    return sum(part.stat().st_size for _, part in list_parts(path))


def tagged(rank, number):
    return b"[%d] line %d\n" % (rank, number)


class Node:
    """An index and the logs of its ranks."""

    def __init__(self, attempt, max_bytes=0):
        self.attempt, self.clock = attempt, Clock()
        self.path = attempt.node_index("10.0.0.7")
        self.index = NodeIndex(self.path, max_bytes, self.clock)
        self.logs = {}

    def write(self, rank, data):
        if rank not in self.logs:
            self.logs[rank] = self.index.rank_log(self.attempt.rank_log(rank), width=1)
        self.logs[rank].write(data)

    def write_line(self, rank, number):
        self.clock.now += 0.0001
        self.write(rank, b"line %d\n" % number)


def test_index_of_many_short_writes_is_small(attempt):
    node = Node(attempt, max_bytes=40_000)
    for number in range(50_000):
        node.write_line(0, number)
    node.index.close()
    assert size_of(attempt.rank_log(0)) <= 40_000
    assert size_of(node.path) < 4000
    shown = NodeTail(node.path).read(to_the_end=True)
    assert shown.startswith(tagged(0, 0) + tagged(0, 1))
    assert shown.endswith(tagged(0, 49_999))
    assert shown.count(b"dropped here") == 1


def test_index_of_alternating_ranks_is_bounded(attempt):
    node = Node(attempt, max_bytes=40_000)
    for number in range(20_000):
        node.write_line(number % 2, number)
    node.index.close()
    assert size_of(node.path) <= 40_000
    assert attempt.node_indices() == [node.path]
    assert len(rank_logs([attempt], rank=None, node="10.0.0.7")) == 2 * 4


def test_output_without_its_index_is_shown_once_and_in_order(attempt):
    node = Node(attempt, max_bytes=40_000)
    for number in range(5000):
        node.write_line(number % 2, number)
    node.index.close()
    assert size_of(attempt.rank_log(0)) == len(b"".join(b"line %d\n" % number for number in range(0, 5000, 2)))
    lines = NodeTail(node.path).read(to_the_end=True).splitlines(keepends=True)
    assert [line for line in lines if b"of the index dropped here" in line]
    for rank in (0, 1):
        shown = [line for line in lines if line.startswith(b"[%d]" % rank)]
        assert shown == [tagged(rank, number) for number in range(rank, 5000, 2)]


def test_follower_reads_on_through_the_parts_of_an_index(attempt):
    node, shown = Node(attempt, max_bytes=40_000), b""
    tail = NodeTail(node.path)
    for number in range(4000):
        node.write_line(number % 2, number)
        if number % 50 == 0:
            shown += tail.read()
    node.index.close()
    shown += tail.read(to_the_end=True)
    assert len(list_parts(node.path)) > 2
    assert shown == b"".join(tagged(number % 2, number) for number in range(4000))


def test_follower_behind_a_dropped_part_reads_on(attempt):
    node, shown = Node(attempt, max_bytes=4000), b""
    tail = NodeTail(node.path)
    for number in range(4000):
        node.write_line(number % 2, number)
        if number in (60, 120, 180):
            shown += tail.read()
    node.index.flush()
    shown += tail.read()
    assert shown.endswith(tagged(1, 3999))


def test_piece_is_held_for_a_moment_and_then_written(attempt):
    node = Node(attempt)
    tail = NodeTail(node.path)
    assert node.index.seconds_until_due() == math.inf
    node.write(0, b"a\n")
    assert tail.read() == b"[0] a\n", "after a pause output is in the index at once"
    node.write(0, b"b\n")
    node.write(0, b"c\n")
    assert 0 < node.index.seconds_until_due() <= MERGE_SECONDS
    node.index.flush_if_due()
    assert tail.read() == b""
    node.clock.now += MERGE_SECONDS
    assert node.index.seconds_until_due() == 0
    node.index.flush_if_due()
    assert tail.read() == b"[0] b\n[0] c\n"
    assert node.path.read_bytes() == b"0 0 2\n0 2 4\n"


def test_held_piece_does_not_grow_without_end(attempt):
    node = Node(attempt)
    for _ in range(9):
        node.write(0, b"x" * (MAX_MERGED_BYTES // 4))
    pieces = [parse_piece(line) for line in node.path.read_bytes().splitlines()]
    assert [piece.length for piece in pieces] == [MAX_MERGED_BYTES // 4, MAX_MERGED_BYTES, MAX_MERGED_BYTES]


def test_lines_of_launchers_are_bounded(attempt):
    node = Node(attempt, max_bytes=40_000)
    read, write = os.pipe()
    output = LauncherOutput(read, "torchrun", node.index)
    for number in range(50):
        os.write(write, b"".join(b"%d.%d\n" % (number, line) for line in range(1000)))
        output.drain()
    os.close(write)
    output.close()
    assert size_of(node.path) <= 40_000
    shown = NodeTail(node.path).read(to_the_end=True)
    assert shown.startswith(b"[torchrun] 0.0\n[torchrun] 0.1\n")
    assert shown.endswith(b"[torchrun] 49.999\n")
    assert shown.count(b"of the index dropped here") == 1
    assert "10.0.0.7.index is longer than --log-max" in node.index.problem.strerror


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), st.binary(min_size=1, max_size=6), st.booleans()), max_size=20))
def test_merged_pieces_keep_bytes_and_order(tmp_path_factory, pieces):
    attempt = AttemptDir(tmp_path_factory.mktemp("attempt"), 0)
    node = Node(attempt)
    tail, live = NodeTail(node.path), b""
    for rank, data, pause in pieces:
        node.clock.now += MERGE_SECONDS if pause else 0.0
        node.write(rank, data)
        live += tail.read()
    node.index.close()
    live += tail.read(to_the_end=True)
    assert live == NodeTail(node.path).read(to_the_end=True)
    for rank in range(3):
        assert RankTail(attempt, rank).read() == b"".join(data for one, data, _ in pieces if one == rank)
