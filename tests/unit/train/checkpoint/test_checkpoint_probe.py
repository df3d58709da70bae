"""A folder that the hosts do not share is detected at the start, and nothing is left on any host."""

import threading
from datetime import timedelta

import pytest

from echelon.errors import EnvironmentProblem
from echelon.train.checkpoint import consensus as consensuses
from echelon.train.checkpoint.capture import Capture
from echelon.train.checkpoint.consensus import Consensus, OutcomeUnknown
from echelon.train.checkpoint.folder import RunContext, check_shared, create_probe, wait_for_probe
from echelon.train.checkpoint.retention import Retention
from echelon.train.checkpoint.write import SaveContext, SaveRequest, run_save

dist = pytest.importorskip("torch.distributed")
SOON = timedelta(seconds=1)
NAME = "abcd"


def on_two_ranks(work, *folders):
    """Runs the function on two ranks with these folders, and returns their results or exceptions."""
    store, results = dist.HashStore(), [None, None]

    def run(rank):
        try:
            results[rank] = work(folders[rank], Consensus(store, rank=rank, size=2), rank)
        except Exception as error:  # noqa: BLE001  the tests check it
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def looked_for(folder, consensus, _):
    return check_shared(folder, NAME, consensus, SOON)


@pytest.fixture
def hosts(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def test_shared_folder_passes_and_the_probe_is_removed(hosts):
    create_probe(hosts[0], NAME)
    assert on_two_ranks(looked_for, hosts[0], hosts[0]) == [None, None]
    assert list(hosts[0].iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
def test_unshared_folder_fails_on_all_ranks(hosts, there):
    if not there:
        hosts[1].rmdir()
    create_probe(hosts[0], NAME)
    told = on_two_ranks(looked_for, *hosts)
    assert [type(error) for error in told] == [EnvironmentProblem] * 2
    assert told[0].what == f"the ranks do not share {hosts[0]}"
    assert all("is not visible to rank 1 on " in error.why and "all hosts see" in error.hint for error in told)
    assert list(hosts[0].iterdir()) == []


def test_probe_waits_for_a_slow_file_system(hosts):
    later = threading.Timer(0.2, create_probe, (hosts[0], NAME))
    later.start()
    assert wait_for_probe(hosts[0], NAME, timedelta(seconds=60))
    later.join()


def saved(folder, consensus, rank):
    place = SaveContext(folder=folder, rank=rank, run_context=RunContext(), retention=Retention(), timeout=SOON)
    order = SaveRequest(step=5, token=NAME, score=None, began=0.0, waited=0.0, parent="")
    snapshot = Capture(data=memoryview(bytes(100)), index={"tensors": []}, begin=100 * rank, end=100 * rank + 100)
    return run_save(place, order, snapshot, consensus)


def test_failed_save_leaves_nothing_on_any_host(hosts):
    told = on_two_ranks(saved, *hosts)
    assert [one.problem for one in told] == ["rank 0 cannot commit: .tmp-5-abcd/rank-1.bin is missing"] * 2
    assert [list(host.iterdir()) for host in hosts] == [[], []]


def test_late_rank_leaves_nothing(hosts):
    store = dist.HashStore()
    for rank in (0, 1):
        with pytest.raises(EnvironmentProblem, match="did not join to save step 5 within 1 s: rank 1"):
            saved(hosts[0], Consensus(store, rank=rank, size=2), rank)
        assert list(hosts[0].iterdir()) == []


def test_unknown_outcome_keeps_the_temporary_folder(hosts, monkeypatch):
    monkeypatch.setattr(consensuses, "EXTRA_OUTCOME_WAIT", timedelta(0))
    with pytest.raises(OutcomeUnknown, match="rank 0"):
        saved(hosts[0], Consensus(dist.HashStore(), rank=1, size=2), 1)
    assert [path.name for path in hosts[0].glob(".tmp-*/*")] == ["rank-1.bin"]
