"""Checking in at a store in memory, threads for ranks: all here, somebody missing, somebody twice."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.train import store as store_module
from echelon.train.rank import Rank, device_index
from echelon.train.rendezvous import host_of_rank, missing_error, register_rank, slurm_hosts
from echelon.train.store import SharedStore, leave_store, parse_file_url, poll_until, store_address, wait_for_key
from echelon.train.world import main_first_failure
from echelon.wire.faults import PEER_EXIT_ERRORS


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
    shared = SharedStore(store=store, place="here")
    try:
        register_rank(shared, who, hosts=lambda: hosts, timeout=timedelta(seconds=seconds))
    except EnvironmentProblem as error:
        return error
    return None


def everybody(store, ranks, **options):
    with ThreadPoolExecutor(len(ranks)) as threads:
        return list(threads.map(lambda who: come(store, who, **options), ranks))


def test_ranks_continue_when_all_have_joined():
    assert everybody(Memory(), [rank(number) for number in range(4)]) == [None] * 4


def test_missing_ranks_are_named_equally_on_all_ranks():
    store = Memory()
    errors = everybody(store, [rank(0), rank(1)], hosts=("a", "a", "b", "b"), seconds=0.2)
    assert len({str(error) for error in errors}) == 1
    assert errors[0].what == "2 of 4 ranks did not join within 0.2 s: rank 2 (b), rank 3 (b)"
    assert "here" in errors[0].origin
    assert store.add("gone", 0) == 2, "so that the host of the store knows when it may go"


def test_late_rank_gets_the_error_at_once():
    store = Memory()
    everybody(store, [rank(0), rank(1), rank(2)], seconds=0.1)
    assert "rank 3" in come(store, rank(3)).what


def test_host_is_known_from_a_rank_of_the_same_node():
    error = come(Memory(), rank(1), seconds=0.05)
    named = error.what.partition(": ")[2].split(", ")
    assert named[0].startswith("rank 0 (")
    assert named[1:] == ["rank 2", "rank 3"], "nobody of their node came"


def test_uncertain_host_is_not_named():
    assert come(Memory(), rank(1, source="Open MPI"), seconds=0.05).what.endswith(": rank 0, rank 2, rank 3")


def test_two_processes_with_one_rank_are_refused():
    store = Memory()
    come(store, rank(0), seconds=0.01)
    error = come(store, rank(0))
    assert error.what.startswith("rank 0 has already joined: process ")
    assert "torchrun" in error.origin


def test_few_missing_ranks_need_few_queries():
    store = Memory()
    for number in range(10_000):
        if number not in (17, 4711):
            store.set(f"here/{number}", json.dumps({"host": "n", "ranks": [0, -1]}))
    error = come(store, rank(4711, size=10_000), seconds=0.0)
    assert "1 of 10000 ranks did not join within 0 s: rank 17" in error.what
    assert store.checks < 60


def test_a_long_list_of_missing_ranks_is_cut():
    error = missing_error([(n, None) for n in range(100)], size=200, place="p", timeout=timedelta(minutes=5))
    assert error.what.startswith("100 of 200 ranks did not join within 300 s: rank 0, rank 1")
    assert error.what.endswith("rank 15, 84 more")


def test_store_host_waits_until_the_others_have_left():
    store = Memory()
    store.add("here", 3)
    host = threading.Thread(target=leave_store, args=[SharedStore(store=store, place="", hosting=True)])
    host.start()
    leave_store(SharedStore(store=store, place=""))
    host.join(0.1)
    assert host.is_alive(), "one is still here"
    leave_store(SharedStore(store=store, place=""))
    host.join(5)
    assert not host.is_alive()


def test_store_host_does_not_wait_forever(monkeypatch):
    monkeypatch.setattr(store_module, "LEAVE_SECONDS", 0.02)
    store = Memory()
    store.add("here", 2)
    leave_store(SharedStore(store=store, place="", hosting=True))
    assert store.add("gone", 0) == 0


def test_last_rank_removes_the_rendezvous_file(tmp_path):
    store, file = Memory(), tmp_path / "meet"
    file.touch()
    store.add("here", 2)
    leave_store(SharedStore(store=store, place="", file=file))
    assert file.exists()
    leave_store(SharedStore(store=store, place="", file=file))
    assert not file.exists()


def test_poll_checks_once_more_at_the_deadline():
    assert len(list(poll_until(timedelta(0)))) == 1
    assert list(poll_until(timedelta(seconds=0.02)))[-1] <= 0


def test_host_list_takes_precedence_over_other_ranks():
    cards = [{"host": "a", "ranks": [0, 1]}, {"host": "b", "ranks": [2, 3]}]
    assert [host_of_rank(number, cards, ()) for number in range(5)] == ["a", "a", "b", "b", None]
    assert host_of_rank(1, cards, ("x", "y")) == "y"


def test_hosts_are_known_only_under_srun_with_equal_counts():
    environ = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    assert slurm_hosts(environ, rank(0, source="srun")) == ["n1", "n1", "n2", "n2"]
    assert slurm_hosts(environ, rank(0, source="torchrun")) == []
    assert slurm_hosts(environ, rank(0, size=3, source="srun")) == []


@pytest.mark.parametrize(
    ("url", "path"),
    [("file:///a/b", "/a/b"), ("file://localhost/a", "/a"), ("file:///a%20b", "/a b"), ("file:/a", "/a")],
)
def test_file_rendezvous_url_is_accepted(url, path):
    assert parse_file_url(url) == path


@pytest.mark.parametrize("url", ["", "/a/b", "tcp://n1:29500", "env://", "file://n1/a", "file:a", "file://"])
def test_other_rendezvous_urls_are_refused(url):
    with pytest.raises(ConfigError, match="rendezvous"):
        parse_file_url(url)


@pytest.mark.parametrize(
    ("fields", "name"),
    [({}, "MASTER_ADDR"), ({"main_address": "n1"}, "MASTER_PORT"), ({"main_port": 5}, "MASTER_ADDR")],
)
def test_missing_rendezvous_variable_is_named(fields, name):
    with pytest.raises(ConfigError, match=f"{name} is not set"):
        store_address(Rank(rank=1, world_size=2, **fields))
    assert store_address(Rank(main_address="n1", main_port=5)) == ("n1", 5)


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"), [(1, 0, 0), (1, 3, 0), (4, 0, 0), (4, 3, 3), (2, 1, 1), (8, 5, 5)]
)
def test_a_task_with_one_gpu_uses_it_and_others_use_their_own(visible, local_rank, index):
    assert device_index(visible, local_rank) == index


@pytest.mark.parametrize(("visible", "local_rank"), [(2, 2), (4, 7), (0, 0)])
def test_rank_without_a_gpu_is_refused(visible, local_rank):
    with pytest.raises(EnvironmentProblem, match=f"local rank {local_rank} has no GPU: {visible}"):
        device_index(visible, local_rank)


def test_error_about_another_ranks_failure_is_an_echo():
    failure = main_first_failure(b'{"rank": 0, "error": "LookupError: no such dataset"}')
    assert failure.what == "LookupError: no such dataset"
    assert PEER_EXIT_ERRORS.search(str(failure))
    assert main_first_failure(b"done") is None


def test_deeply_nested_failure_in_the_store_is_a_value_error():
    with pytest.raises(ValueError, match="nested"):
        main_first_failure(b"[" * 100_000 + b"]" * 100_000)


def test_lost_store_is_an_echo():
    class Lost(Memory):
        def check(self, _):
            raise RuntimeError("failed to recv, got 0 bytes\nframe #0: somewhere")

    with pytest.raises(EnvironmentProblem, match="lost the connection to the store at n1:5") as caught:
        wait_for_key(SharedStore(store=Lost(), place="n1:5"), "first/1")
    assert PEER_EXIT_ERRORS.search(str(caught.value))
    assert "frame" not in str(caught.value)
