"""Checking in at a store in memory, threads for ranks: all here, somebody missing, somebody twice."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.node.faults import ECHOES
from echelon.runtime import meeting as meetings
from echelon.runtime.meeting import Meeting, await_key, file_of, leave, meeting_point, polls
from echelon.runtime.rank import Rank
from echelon.runtime.rendezvous import check_in, host_of, missing_error, slurm_hosts
from echelon.runtime.world import device_index, failure_told


class Memory:
    """A store as torch's are."""

    def __init__(self):
        self.values, self.lock, self.checks = {}, threading.RLock(), 0

    def add(self, key, amount):
        with self.lock:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            return total

    def set(self, key, value):
        with self.lock:
            self.values[key] = value.encode()

    def get(self, key):
        with self.lock:
            return self.values[key]

    def check(self, keys):
        with self.lock:
            self.checks += 1
            return all(key in self.values for key in keys)

    def compare_set(self, key, expected, desired):
        with self.lock:
            if self.values.get(key, b"") == expected.encode():
                self.values[key] = desired.encode()
            return self.values[key]


def rank(number, size=4, source="torchrun"):
    return Rank(rank=number, world_size=size, local_rank=number % 2, local_world_size=2, source=source)


def come(store, who, *, hosts=(), seconds=30.0):
    meeting = Meeting(store=store, place="here")
    try:
        check_in(meeting, who, hosts=lambda: hosts, timeout=timedelta(seconds=seconds))
    except EnvironmentProblem as error:
        return error
    return None


def everybody(store, ranks, **options):
    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(lambda who: come(store, who, **options), ranks))


def test_when_all_are_here_nobody_waits_longer():
    assert everybody(Memory(), [rank(number) for number in range(4)]) == [None] * 4


def test_the_missing_are_named_to_everybody_in_the_same_words():
    store = Memory()
    errors = everybody(store, [rank(0), rank(1)], hosts=("a", "a", "b", "b"), seconds=0.2)
    assert len({str(error) for error in errors}) == 1
    assert errors[0].what == "2 of 4 ranks did not come within 0.2 s: rank 2 (b), rank 3 (b)"
    assert "here" in errors[0].origin
    assert store.add("gone", 0) == 2, "so that the host of the store knows when it may go"


def test_who_comes_after_the_verdict_hears_it_at_once():
    store = Memory()
    everybody(store, [rank(0), rank(1), rank(2)], seconds=0.1)
    assert "rank 3" in come(store, rank(3)).what


def test_a_host_is_known_by_a_neighbour_that_came():
    error = come(Memory(), rank(1), seconds=0.05)
    named = error.what.partition(": ")[2].split(", ")
    assert named[0].startswith("rank 0 (")
    assert named[1:] == ["rank 2", "rank 3"], "nobody of their node came"


def test_a_host_that_would_be_a_guess_is_not_named():
    assert come(Memory(), rank(1, source="Open MPI"), seconds=0.05).what.endswith(": rank 0, rank 2, rank 3")


def test_two_processes_with_one_rank_are_told():
    store = Memory()
    come(store, rank(0), seconds=0.01)
    error = come(store, rank(0))
    assert error.what.startswith("rank 0 is here already: process ")
    assert "torchrun" in error.origin


def test_a_few_missing_of_many_cost_a_few_questions():
    store = Memory()
    for number in range(10_000):
        if number not in (17, 4711):
            store.set(f"here/{number}", json.dumps({"host": "n", "ranks": [0, -1]}))
    error = come(store, rank(4711, size=10_000), seconds=0.0)
    assert "1 of 10000 ranks did not come within 0 s: rank 17" in error.what
    assert store.checks < 60


def test_a_long_list_of_missing_ranks_is_cut():
    error = missing_error([(n, None) for n in range(100)], size=200, place="p", timeout=timedelta(minutes=5))
    assert error.what.startswith("100 of 200 ranks did not come within 300 s: rank 0, rank 1")
    assert error.what.endswith("rank 15, 84 more")


def test_the_host_of_a_store_stays_until_the_others_have_left():
    store = Memory()
    store.add("here", 3)
    host = threading.Thread(target=leave, args=[Meeting(store=store, place="", hosting=True)])
    host.start()
    leave(Meeting(store=store, place=""))
    host.join(0.1)
    assert host.is_alive(), "one is still here"
    leave(Meeting(store=store, place=""))
    host.join(5)
    assert not host.is_alive()


def test_a_host_does_not_stay_forever(monkeypatch):
    monkeypatch.setattr(meetings, "FAREWELL_SECONDS", 0.02)
    store = Memory()
    store.add("here", 2)
    leave(Meeting(store=store, place="", hosting=True))
    assert store.add("gone", 0) == 0


def test_the_last_to_leave_takes_the_file_away(tmp_path):
    store, file = Memory(), tmp_path / "meet"
    file.touch()
    store.add("here", 2)
    leave(Meeting(store=store, place="", file=file))
    assert file.exists()
    leave(Meeting(store=store, place="", file=file))
    assert not file.exists()


def test_there_is_always_one_last_look():
    assert len(list(polls(timedelta(0)))) == 1
    assert list(polls(timedelta(seconds=0.02)))[-1] <= 0


def test_hosts_come_from_the_list_before_the_neighbours():
    cards = [{"host": "a", "ranks": [0, 1]}, {"host": "b", "ranks": [2, 3]}]
    assert [host_of(number, cards, ()) for number in range(5)] == ["a", "a", "b", "b", None]
    assert host_of(1, cards, ("x", "y")) == "y"


def test_srun_alone_tells_hosts_and_only_if_it_counts_as_we_do():
    environ = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    assert slurm_hosts(environ, rank(0, source="srun")) == ["n1", "n1", "n2", "n2"]
    assert slurm_hosts(environ, rank(0, source="torchrun")) == []
    assert slurm_hosts(environ, rank(0, size=3, source="srun")) == []


@pytest.mark.parametrize(
    ("url", "path"),
    [("file:///a/b", "/a/b"), ("file://localhost/a", "/a"), ("file:///a%20b", "/a b"), ("file:/a", "/a")],
)
def test_a_file_to_meet_at(url, path):
    assert file_of(url) == path


@pytest.mark.parametrize("url", ["", "/a/b", "tcp://n1:29500", "env://", "file://n1/a", "file:a", "file://"])
def test_other_places_to_meet_are_refused(url):
    with pytest.raises(ConfigError, match="rendezvous"):
        file_of(url)


@pytest.mark.parametrize(
    ("fields", "name"),
    [({}, "MASTER_ADDR"), ({"main_address": "n1"}, "MASTER_PORT"), ({"main_port": 5}, "MASTER_ADDR")],
)
def test_nowhere_to_meet_is_said_by_the_variable_that_is_missing(fields, name):
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        meeting_point(Rank(rank=1, world_size=2, **fields))
    assert meeting_point(Rank(main_address="n1", main_port=5)) == ("n1", 5)


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"), [(1, 0, 0), (1, 3, 0), (4, 0, 0), (4, 3, 3), (2, 1, 1), (8, 5, 5)]
)
def test_a_task_with_one_gpu_uses_it_and_others_use_their_own(visible, local_rank, index):
    assert device_index(visible, local_rank) == index


@pytest.mark.parametrize(("visible", "local_rank"), [(2, 2), (4, 7), (0, 0)])
def test_a_rank_without_a_gpu_is_told(visible, local_rank):
    with pytest.raises(EnvironmentProblem, match=f"local rank {local_rank} has no GPU: {visible}"):
        device_index(visible, local_rank)


def test_what_a_rank_says_of_anothers_failure_is_known_as_an_echo():
    failure = failure_told(b'{"rank": 0, "error": "LookupError: no such dataset"}')
    assert failure.what == "LookupError: no such dataset"
    assert ECHOES.search(str(failure))
    assert failure_told(b"done") is None


def test_so_is_the_loss_of_a_store():
    class Lost(Memory):
        def check(self, _):
            raise RuntimeError("failed to recv, got 0 bytes\nframe #0: somewhere")

    with pytest.raises(EnvironmentProblem, match="the store at n1:5 is gone") as caught:
        await_key(Meeting(store=Lost(), place="n1:5"), "first/1")
    assert ECHOES.search(str(caught.value))
    assert "frame" not in str(caught.value)
