"""A folder that is not the same on all hosts: found out at the beginning, and nothing is left on any of them."""

import threading
from datetime import timedelta

import pytest

from echelon.errors import EnvironmentProblem
from echelon.runtime.checkpoint import council as councils
from echelon.runtime.checkpoint import probe
from echelon.runtime.checkpoint.council import Council, Unheard
from echelon.runtime.checkpoint.fence import Standing
from echelon.runtime.checkpoint.retention import Retention
from echelon.runtime.checkpoint.save import Order, Place, carry_out
from echelon.runtime.checkpoint.snapshot import Snapshot

dist = pytest.importorskip("torch.distributed")
SOON = timedelta(seconds=1)
NAME = "abcd"


def on_two_ranks(work, *folders):
    """What each rank returned or raised, each with a folder of its own."""
    store, results = dist.HashStore(), [None, None]

    def run(rank):
        try:
            results[rank] = work(folders[rank], Council(store, rank=rank, size=2), rank)
        except Exception as error:  # noqa: BLE001  it is looked at below
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def looked_for(folder, council, _):
    return probe.check(folder, NAME, council, SOON)


@pytest.fixture
def hosts(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def test_where_all_see_one_folder_nothing_is_said_and_nothing_left(hosts):
    probe.leave(hosts[0], NAME)
    assert on_two_ranks(looked_for, hosts[0], hosts[0]) == [None, None]
    assert list(hosts[0].iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
def test_where_one_does_not_all_are_told_who(hosts, there):
    if not there:
        hosts[1].rmdir()
    probe.leave(hosts[0], NAME)
    told = on_two_ranks(looked_for, *hosts)
    assert [type(error) for error in told] == [EnvironmentProblem] * 2
    assert told[0].what == f"the ranks do not share {hosts[0]}"
    assert all("is not seen by rank 1 on " in error.why and "all hosts see" in error.hint for error in told)
    assert list(hosts[0].iterdir()) == []


def test_a_file_system_that_is_slow_to_show_it_is_waited_for(hosts):
    later = threading.Timer(0.2, probe.leave, (hosts[0], NAME))
    later.start()
    assert probe.sees(hosts[0], NAME, timedelta(seconds=60))
    later.join()


def saved(folder, council, rank):
    place = Place(folder=folder, rank=rank, standing=Standing(), retention=Retention(), timeout=SOON)
    order = Order(step=5, token=NAME, score=None, began=0.0, parent="")
    snapshot = Snapshot(data=memoryview(bytes(100)), index={"tensors": []}, begin=100 * rank, end=100 * rank + 100)
    return carry_out(place, order, snapshot, council)


def test_a_save_that_fails_leaves_nothing_on_any_host(hosts):
    told = on_two_ranks(saved, *hosts)
    assert [one.problem for one in told] == ["rank 0 cannot commit: .tmp-5-abcd/rank-1.bin is missing"] * 2
    assert [list(host.iterdir()) for host in hosts] == [[], []]


def test_a_rank_that_comes_too_late_leaves_nothing_either(hosts):
    store = dist.HashStore()
    for rank in (0, 1):
        with pytest.raises(EnvironmentProblem, match="did not come to save step 5 within 1 s: rank 1"):
            saved(hosts[0], Council(store, rank=rank, size=2), rank)
        assert list(hosts[0].iterdir()) == []


def test_a_rank_that_hears_nothing_takes_nothing_from_a_commit_that_may_be_under_way(hosts, monkeypatch):
    monkeypatch.setattr(councils, "PATIENCE", timedelta(0))
    with pytest.raises(Unheard, match="rank 0"):
        saved(hosts[0], Council(dist.HashStore(), rank=1, size=2), 1)
    assert [path.name for path in hosts[0].glob(".tmp-*/*")] == ["rank-1.bin"]
