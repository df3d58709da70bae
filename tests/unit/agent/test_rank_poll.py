"""The agent asks the worker servers of its ranks, here a small server that answers as torch does."""

import json
import socket
import threading
import time

import pytest

from echelon.agent.rank_poll import ASK_SECONDS, SILENT_SECONDS, RankPoll
from echelon.train.progress import PAGE_CELLS, StepClock
from echelon.wire.node_dir import NodeDir


def write_steps(folder, rank, count):
    cells = [0] * PAGE_CELLS
    clock = StepClock(cells)
    for step in range(count + 1):
        clock.input_ns = 0
        clock.end_step(step)
    folder.progress(rank).write_bytes(b"".join(cell.to_bytes(8, "little", signed=True) for cell in cells))


@pytest.fixture
def serve(tmp_path):
    servers = []

    def start(rank, *entries):
        """The entries of the flight recorder, or one list of them that may change."""
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(NodeDir(tmp_path).worker_server(rank)))
        server.listen()
        servers.append(server)
        calls = entries[0] if entries and isinstance(entries[0], list) else entries
        threading.Thread(target=answer, args=(server, calls), daemon=True).start()

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def answer(server, calls):
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            connection.recv(1 << 16)
            body = json.dumps({"version": "2.10", "entries": calls}).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + body)


PENDING = {"profiling_name": "gloo:all_reduce", "retired": False, "time_created_ns": 5, "timeout_ms": 90_000}


class Poll:
    """A poll without its thread, at a time of the test's choice."""

    def __init__(self, folder, monkeypatch):
        self.now, self.poll = 1000.0, RankPoll(NodeDir(folder))
        self.poll._thread = threading.current_thread()
        real = time.monotonic
        began = real()
        monkeypatch.setattr(time, "monotonic", lambda: self.now + real() - began)

    def look(self, seconds, steps, rank=0, pid=1, lines=0):
        self.poll.watch({rank: (pid, steps, lines)})
        self.now += seconds
        watched = self.poll._ranks[rank]
        self.poll._ask_if_due(rank, watched)
        return self.poll.take(rank)


@pytest.fixture
def poll(tmp_path, monkeypatch):
    return Poll(tmp_path, monkeypatch)


def test_pace_is_measured_from_new_steps_and_taken_once(poll, tmp_path, serve):
    serve(0)
    write_steps(NodeDir(tmp_path), 0, 20)
    look = poll.look(ASK_SECONDS, 20)
    assert (look.pace.step, look.pace.arrivals, look.waits_in_collective) == (20, (), False)
    assert poll.poll.take(0).pace is None
    assert poll.look(ASK_SECONDS, 20).pace is None, "no new steps"
    write_steps(NodeDir(tmp_path), 0, 30)
    assert poll.look(1000, 30).pace.step == 30


def test_rank_is_not_asked_before_its_time(poll, tmp_path, serve):
    serve(0)
    write_steps(NodeDir(tmp_path), 0, 20)
    assert poll.look(ASK_SECONDS / 2, 20).pace is None


def test_silent_rank_waits_in_a_collective(poll, tmp_path, serve):
    serve(0, PENDING)
    write_steps(NodeDir(tmp_path), 0, 2)
    assert not poll.look(SILENT_SECONDS / 2, 2).waits_in_collective
    look = poll.look(SILENT_SECONDS, 2)
    assert (look.waits_in_collective, look.waits_on_disk, look.group_timeout) == (True, False, 90.0)
    assert poll.poll.take(0).waits_in_collective, "until the step changes"
    poll.poll.watch({0: (1, 3, 0)})
    assert not poll.poll.take(0).waits_in_collective


def test_rank_without_a_server_has_a_pace_without_arrivals(poll, tmp_path):
    write_steps(NodeDir(tmp_path), 0, 20)
    assert poll.look(ASK_SECONDS, 20).pace.arrivals is None


def called(seconds):
    """A pending collective that was called so long ago."""
    return {**PENDING, "time_created_ns": int((time.time() - seconds) * 1e9)}


def test_silent_rank_without_steps_is_asked_how_long_it_waits(poll, serve):
    serve(0, called(40))
    assert not poll.look(SILENT_SECONDS / 2, None).waits_in_collective
    look = poll.look(SILENT_SECONDS, None)
    assert (look.waits_in_collective, look.group_timeout) == (True, 90.0)
    assert look.collective_seconds == pytest.approx(40, abs=1)
    assert poll.look(ASK_SECONDS, None).collective_seconds == pytest.approx(40 + ASK_SECONDS, abs=1)
    assert not poll.look(SILENT_SECONDS / 2, None, lines=1).waits_in_collective, "it has printed a line"


def test_silent_rank_without_steps_that_trains_is_asked_less_often(poll, serve):
    calls = []
    serve(0, calls)
    poll.look(SILENT_SECONDS, None)
    calls.append(called(1))
    assert not poll.look(ASK_SECONDS, None).waits_in_collective
    assert poll.look(SILENT_SECONDS, None).waits_in_collective


def test_wait_is_not_longer_than_since_the_last_look(poll, serve):
    serve(0, called(3600))
    assert poll.look(SILENT_SECONDS, None).collective_seconds == pytest.approx(SILENT_SECONDS, abs=1)


def test_another_collective_is_another_wait(poll, serve):
    calls = [called(10)]
    serve(0, calls)
    poll.look(SILENT_SECONDS, None)
    assert poll.look(SILENT_SECONDS, None).collective_seconds == pytest.approx(10 + SILENT_SECONDS, abs=1)
    calls[:] = [called(2)]
    look = poll.look(SILENT_SECONDS, None)
    assert look.waits_in_collective
    assert look.collective_seconds == pytest.approx(2, abs=1)


def test_new_process_of_a_rank_starts_without_the_old_look(poll, tmp_path, serve):
    serve(0, PENDING)
    write_steps(NodeDir(tmp_path), 0, 2)
    poll.look(1, 2)
    assert poll.look(2 * SILENT_SECONDS, 2).waits_in_collective
    poll.poll.watch({0: (2, 2, 0)})
    assert not poll.poll.take(0).waits_in_collective


def test_rank_that_has_exited_is_forgotten(poll, tmp_path):
    write_steps(NodeDir(tmp_path), 0, 20)
    poll.look(1, 20)
    poll.poll.watch({})
    assert poll.poll.take(0).pace is None
    assert poll.poll._ranks == {}


def test_thread_starts_with_the_first_rank_and_ends(tmp_path):
    poll = RankPoll(NodeDir(tmp_path))
    poll.watch({})
    assert poll._thread is None
    poll.watch({0: (1, None, 0)})
    assert poll._thread.is_alive()
    poll.close()
    poll._thread.join(10)
    assert not poll._thread.is_alive()
