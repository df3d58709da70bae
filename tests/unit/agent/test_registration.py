"""Registration of workers over real sockets, with the test as the worker."""

import os
import signal
import subprocess
import sys

import pytest

from echelon.agent.registration import Registration, ReservedPlace, WorkerRejected, connect
from echelon.placement import Placement, RankPlace
from echelon.wire.fds import (
    WORKER_ORDERS,
    CheckIn,
    KillLeftovers,
    RankEnded,
    RunRank,
    Signal,
    receive_order,
    send_order,
)
from echelon.wire.reports import Started
from running import wait_for

PLACEMENT = Placement(
    run_id="r",
    attempt=0,
    generation=0,
    node_rank=1,
    nodes=2,
    procs_per_node=2,
    main_address="127.0.0.1",
    main_port=1,
    store_is_up=False,
    max_restarts=0,
)


class Book:
    """A desk in a folder, and what it has reported so far."""

    def __init__(self, folder):
        self.folder = folder
        self.desk = Registration(folder)
        self.reports = []
        self.links = []
        self.outputs = []

    def close(self):
        self.desk.close()
        for link in self.links:
            link.close()
        for output in self.outputs:
            os.close(output)

    def listen(self, seconds=0.05):
        self.reports += self.desk.receive(self.desk.wait_readable(seconds))
        return self.reports

    def open(self, generation=0, ranks=(2, 3), size=4):
        places = {}
        for local_rank, rank in enumerate(ranks):
            reading, writing = os.pipe()
            self.outputs.append(reading)
            place = RankPlace(placement=PLACEMENT, local_rank=local_rank)
            order = RunRank(argv=("true",), cwd="/", umask=0o022, env={"WHO": str(rank)}, defaults={}, place=place)
            expected = {"rank": rank, "world_size": size}
            places[local_rank] = ReservedPlace(rank=rank, order=order, output=writing, expected=expected)
        self.desk.open(generation, places)

    def arrive(self, local_rank=0, rank=2, generation=0, size=4):
        link = connect(self.folder)
        self.links.append(link)
        description = f"torchrun assigned rank {rank} of {size}"
        send_order(
            link,
            CheckIn(generation=generation, local_rank=local_rank, rank=rank, world_size=size, description=description),
        )
        self.listen()
        self.listen()
        return link


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path)
    yield book
    book.close()


def is_rank(link, rank):
    order, (output,) = received(link)
    os.close(output)
    return order.env["WHO"] == str(rank)


def received(link):
    return receive_order(link, WORKER_ORDERS)


def is_waiting(link):
    link.setblocking(False)
    try:
        received(link)
    except BlockingIOError:
        return True
    finally:
        link.setblocking(True)
    return False


def test_a_worker_gets_its_order_and_its_output(book):
    book.open()
    link = book.arrive(local_rank=1, rank=3)
    order, (output,) = received(link)
    assert order.env["WHO"] == "3"
    os.write(output, b"hello")
    os.close(output)
    assert os.read(book.outputs[1], 9) == b"hello"


def test_a_folder_with_a_long_name(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    book = Book(folder)
    book.open()
    assert is_rank(book.arrive(), 2)
    book.close()


def test_early_worker_waits_for_its_generation(book):
    link = book.arrive(generation=1)
    assert is_waiting(link)
    book.open(generation=1)
    book.listen()
    assert is_rank(link, 2)


def test_late_worker_is_rejected_without_a_report(book):
    book.open(generation=1)
    assert received(book.arrive(generation=0)) is None
    assert book.reports == []


@pytest.mark.parametrize(
    ("check_in", "words"),
    [
        ({"rank": 1}, "rank 1 instead of 2"),
        ({"size": 8}, "world_size 8 instead of 4"),
        ({"rank": 0, "size": 1}, "rank 0 instead of 2 and world_size 1 instead of 4"),
        ({"local_rank": 2, "rank": 4}, "local rank 2 is not expected or has registered before"),
    ],
)
def test_worker_that_contradicts_the_placement_is_rejected(book, check_in, words):
    book.open()
    assert received(book.arrive(**check_in)) is None
    (report,) = book.reports
    assert isinstance(report, WorkerRejected)
    assert words in report.why
    assert "torchrun assigned rank" in report.why


def test_second_worker_of_a_local_rank_is_rejected(book):
    book.open()
    book.arrive()
    assert received(book.arrive()) is None
    assert isinstance(book.reports[-1], WorkerRejected)


def test_reports_have_the_assigned_rank(book):
    book.open(generation=5)
    link = book.arrive(generation=5)
    send_order(link, Started(generation=0, rank=0, pid=77))
    book.listen()
    assert book.reports == [Started(generation=5, rank=2, pid=77)]


def test_report_of_a_worker_without_a_rank_is_ignored(book):
    link = book.arrive(generation=1)
    send_order(link, RankEnded(generation=1, rank=2, code=0, time=1.0))
    assert book.listen() == []


@pytest.mark.parametrize("data", [b"[]", b"{", b'{"is": "Started", "pid": "x"}', b'{"is": "Explode"}'], ids=repr)
def test_invalid_report_disconnects_the_worker(book, data):
    book.open()
    link = connect(book.folder)
    book.links.append(link)
    link.send(data)
    book.listen()
    assert book.listen() == []
    assert received(link) is None


def test_worker_cannot_report_for_the_starter(book):
    book.open()
    link = book.arrive()
    assert is_rank(link, 2)
    send_order(link, KillLeftovers(generation=0, launcher_seconds=0.0))
    (report,) = wait_for(book.listen, "the worker to be turned away")
    assert (report.rank, report.code) == (2, -signal.SIGKILL)


def test_lost_worker_counts_as_killed_with_its_rank(book):
    book.open()
    book.arrive().close()
    (report,) = wait_for(book.listen, "word of it")
    assert isinstance(report, RankEnded)
    assert (report.rank, report.code) == (2, -signal.SIGKILL)


def test_worker_exit_after_its_rank_is_not_reported(book):
    book.open()
    link = book.arrive()
    send_order(link, RankEnded(generation=0, rank=2, code=0, time=1.0))
    link.close()
    wait_for(lambda: book.listen() and book.desk.is_empty, "it to be gone")
    assert [report.code for report in book.reports] == [0]


def test_orders_reach_the_ranks_they_are_for(book):
    book.open()
    first, second = book.arrive(), book.arrive(local_rank=1, rank=3)
    assert is_rank(first, 2)
    assert is_rank(second, 3)
    order = Signal(ranks=(3,), signum=signal.SIGTERM, group=True)
    book.desk.signal(order)
    assert is_waiting(first)
    assert received(second)[0] == order


def test_release_closes_the_connection_and_reports_arrive(book):
    book.open()
    link = book.arrive()
    assert is_rank(link, 2)
    book.desk.release_workers()
    assert received(link) is None
    assert not book.desk.is_empty
    send_order(link, RankEnded(generation=0, rank=2, code=-9, time=1.0))
    link.close()
    wait_for(lambda: book.listen() is not None and book.desk.is_empty, "it to be gone")
    assert received(book.arrive(local_rank=1, rank=3)) is None, "whoever comes now is turned away"


def test_release_keeps_workers_of_the_next_generation(book):
    book.open()
    early = book.arrive(generation=1)
    book.desk.release_workers()
    book.open(generation=1)
    book.listen()
    assert is_rank(early, 2)


def test_released_worker_that_stays_is_killed_with_children(book):
    book.open()
    code = (
        "import subprocess, sys; from pathlib import Path; from echelon.agent.registration import connect\n"
        "from echelon.wire.fds import CheckIn, send_order\n"
        "link = connect(Path(sys.argv[1]))\n"
        "send_order(link, CheckIn(generation=0, local_rank=0, rank=2, world_size=4, description=''))\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(book.folder)], stdout=subprocess.PIPE, text=True)
    child = int(worker.stdout.readline())
    wait_for(lambda: book.listen() is not None and not book.desk.is_empty, "the worker")
    book.desk.release_workers()
    book.desk.kill()
    assert worker.wait(10) == -signal.SIGKILL
    wait_for(lambda: not is_alive(child), "its child to be gone")
    worker.stdout.close()


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
