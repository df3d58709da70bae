"""The desk where ranks check in that somebody else starts: over real sockets, with the test as the worker."""

import os
import signal
import subprocess
import sys

import pytest

from echelon.node.desk import Desk, Place, connect
from echelon.node.orders import receive_order, send_order
from running import wait_for


class Book:
    """A desk in a folder, and what it has reported so far."""

    def __init__(self, folder):
        self.folder = folder
        self.desk = Desk(folder)
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
        self.reports += self.desk.hear(self.desk.readable(seconds))
        return self.reports

    def open(self, generation=0, ranks=(2, 3), size=4):
        places = {}
        for local_rank, rank in enumerate(ranks):
            reading, writing = os.pipe()
            self.outputs.append(reading)
            order = {"is": "rank", "who": rank, "decided": {"rank": rank, "world_size": size}}
            places[local_rank] = Place(rank=rank, order=order, output=writing)
        self.desk.open(generation, places)

    def arrive(self, local_rank=0, rank=2, generation=0, size=4):
        link = connect(self.folder)
        self.links.append(link)
        said = f"torchrun says rank {rank} of {size}"
        card = {"local_rank": local_rank, "rank": rank, "world_size": size, "generation": generation, "said": said}
        send_order(link, {"is": "here", **card})
        self.listen()
        self.listen()
        return link


@pytest.fixture
def book(tmp_path):
    book = Book(tmp_path)
    yield book
    book.close()


def is_rank(link, rank):
    order, (output,) = receive_order(link)
    os.close(output)
    return order["who"] == rank


def is_waiting(link):
    link.setblocking(False)
    try:
        receive_order(link)
    except BlockingIOError:
        return True
    finally:
        link.setblocking(True)
    return False


def test_a_worker_gets_its_order_and_its_output(book):
    book.open()
    link = book.arrive(local_rank=1, rank=3)
    order, (output,) = receive_order(link)
    assert order["who"] == 3
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


def test_who_comes_before_its_generation_waits_for_it(book):
    link = book.arrive(generation=1)
    assert is_waiting(link)
    book.open(generation=1)
    book.listen()
    assert is_rank(link, 2)


def test_who_comes_too_late_is_turned_away_without_a_word(book):
    book.open(generation=1)
    assert receive_order(book.arrive(generation=0)) is None
    assert book.reports == []


@pytest.mark.parametrize(
    ("card", "words"),
    [
        ({"rank": 1}, "rank 1 instead of 2"),
        ({"size": 8}, "world_size 8 instead of 4"),
        ({"rank": 0, "size": 1}, "rank 0 instead of 2 and world_size 1 instead of 4"),
        ({"local_rank": 2, "rank": 4}, "local rank 2 is not wanted here"),
    ],
)
def test_a_rank_that_contradicts_what_was_decided_is_refused_by_name(book, card, words):
    book.open()
    assert receive_order(book.arrive(**card)) is None
    (report,) = book.reports
    assert report["is"] == "refused"
    assert words in report["why"]
    assert "torchrun says rank" in report["why"]


def test_nobody_comes_twice(book):
    book.open()
    book.arrive()
    assert receive_order(book.arrive()) is None
    assert book.reports[-1]["is"] == "refused"


def test_reports_carry_the_rank_that_we_gave(book):
    book.open(generation=5)
    link = book.arrive(generation=5)
    send_order(link, {"is": "started", "pid": 77})
    book.listen()
    assert book.reports == [{"is": "started", "pid": 77, "rank": 2, "generation": 5}]


def test_a_worker_that_vanishes_was_killed_and_its_rank_with_it(book):
    book.open()
    book.arrive().close()
    (report,) = wait_for(book.listen, "word of it")
    assert (report["is"], report["rank"], report["code"]) == ("exited", 2, -signal.SIGKILL)


def test_a_worker_that_leaves_after_its_rank_is_no_news(book):
    book.open()
    link = book.arrive()
    send_order(link, {"is": "exited", "code": 0, "time": 1.0})
    link.close()
    wait_for(lambda: book.listen() and book.desk.is_empty, "it to be gone")
    assert [report["code"] for report in book.reports] == [0]


def test_orders_reach_the_ranks_they_are_for(book):
    book.open()
    first, second = book.arrive(), book.arrive(local_rank=1, rank=3)
    assert is_rank(first, 2)
    assert is_rank(second, 3)
    book.desk.signal([3], signal.SIGTERM, group=True)
    assert is_waiting(first)
    assert receive_order(second)[0] == {"is": "signal", "signal": signal.SIGTERM, "group": True}


def test_letting_go_is_the_end_of_the_connection_and_leaving_is_heard(book):
    book.open()
    link = book.arrive()
    assert is_rank(link, 2)
    book.desk.let_go()
    assert receive_order(link) is None
    assert not book.desk.is_empty
    send_order(link, {"is": "exited", "code": -9, "time": 1.0})
    link.close()
    wait_for(lambda: book.listen() is not None and book.desk.is_empty, "it to be gone")
    assert receive_order(book.arrive(local_rank=1, rank=3)) is None, "whoever comes now is turned away"


def test_those_of_the_next_generation_are_not_let_go_with_the_last_one(book):
    book.open()
    early = book.arrive(generation=1)
    book.desk.let_go()
    book.open(generation=1)
    book.listen()
    assert is_rank(early, 2)


def test_one_that_does_not_leave_is_killed_with_all_it_has(book):
    book.open()
    code = (
        "import subprocess, sys; from pathlib import Path; from echelon.node.desk import connect\n"
        "from echelon.node.orders import send_order\n"
        "link = connect(Path(sys.argv[1]))\n"
        "card = {'local_rank': 0, 'rank': 2, 'world_size': 4, 'generation': 0, 'said': ''}\n"
        "send_order(link, {'is': 'here', **card})\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(book.folder)], stdout=subprocess.PIPE, text=True)
    child = int(worker.stdout.readline())
    wait_for(lambda: book.listen() is not None and not book.desk.is_empty, "the worker")
    book.desk.let_go()
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
