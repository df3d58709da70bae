"""Consensus through a store: all ranks get the same outcome, and missing ranks are named."""

import threading
from datetime import timedelta
from functools import partial

import pytest

from echelon.errors import EnvironmentProblem
from echelon.train.checkpoint import consensus as module
from echelon.train.checkpoint.consensus import Consensus, WaitCancelled
from echelon.wire.faults import follows_peer_exit
from echelon.wire.messages import Exit
from echelon.wire.reports import ErrorRecord

dist = pytest.importorskip("torch.distributed")
SOON = timedelta(seconds=20)


def together(*work):
    """Runs each function in a thread, and returns their results or exceptions."""
    results = [None] * len(work)

    def run(place):
        try:
            results[place] = work[place]()
        except Exception as error:  # noqa: BLE001  the tests check it
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def consensuses(size):
    store = dist.HashStore()
    return [Consensus(store, rank=rank, size=size) for rank in range(size)], store


def total(words):
    return {"sum": sum(word["n"] for word in words), "order": [word["n"] for word in words]}


def test_all_ranks_get_the_result_of_rank_0_each_round():
    ranks, store = consensuses(3)
    for number in range(20):
        words = [{"n": rank * number} for rank in range(3)]
        told = together(*(partial(c.agree, "add", word, total, SOON) for c, word in zip(ranks, words, strict=True)))
        assert told == [{"sum": 3 * number, "order": [0, number, 2 * number]}] * 3
    assert store.num_keys() <= 2 * 4, "old rounds are forgotten"


def test_missing_ranks_are_named_on_the_others(monkeypatch):
    ranks, _ = consensuses(4)
    short = timedelta(seconds=0.3)
    told = together(*(lambda c=c: c.agree("save step 7", {"n": 1}, total, short) for c in (ranks[0], ranks[2])))
    assert all(isinstance(error, EnvironmentProblem) for error in told)
    assert told[0].what == told[1].what == "2 of 4 ranks did not join to save step 7 within 0.3 s: rank 1, rank 3"
    late = ranks[1].agree
    with pytest.raises(EnvironmentProblem, match="rank 1, rank 3"):
        late("save step 7", {"n": 1}, total, short)


def test_missing_rank_0_ends_the_wait_after_timeout(monkeypatch):
    monkeypatch.setattr(module, "EXTRA_OUTCOME_WAIT", timedelta(0))
    ranks, _ = consensuses(2)
    with pytest.raises(EnvironmentProblem, match=r"did not join to load within 0\.1 s: rank 0"):
        ranks[1].agree("load", {}, total, timedelta(seconds=0.1))


def test_error_of_rank_0_reaches_the_other_ranks():
    ranks, _ = consensuses(2)

    def fails(_):
        raise OSError("no room")

    told = together(*(lambda c=c: c.agree("begin", {}, fails, SOON) for c in ranks))
    assert isinstance(told[0], OSError)
    assert isinstance(told[1], EnvironmentProblem)
    assert (told[1].what, told[1].why) == ("rank 0 could not begin", "OSError: no room")
    record = ErrorRecord(type="EnvironmentProblem", message=str(told[1]), time=0.0, traceback="")
    assert follows_peer_exit(Exit(rank=1, host="a", code=1, time=0.0, error=record)), (
        "the verdict is on what rank 0 raised"
    )


def test_echelon_error_of_rank_0_is_sent_with_what_and_why():
    ranks, _ = consensuses(2)

    def fails(_):
        raise EnvironmentProblem("another job saves there", why="the lock is held")

    told = together(*(lambda c=c: c.agree("begin", {}, fails, SOON) for c in ranks))
    assert told[1].why == "another job saves there\nthe lock is held"


def test_leave_ends_the_wait():
    ranks, _ = consensuses(2)
    waiting = threading.Timer(0.1, ranks[1].leave)
    waiting.start()
    with pytest.raises(WaitCancelled):
        ranks[1].agree("begin", {}, total, SOON)
    waiting.join()


def test_await_everyone_ends_when_all_arrive_or_at_timeout():
    ranks, _ = consensuses(3)
    for _ in range(3):
        together(*(partial(consensus.await_everyone, SOON) for consensus in ranks))
    together(*(partial(consensus.await_everyone, timedelta(seconds=0.2)) for consensus in ranks[:2]))
    ranks[0].leave()
    with pytest.raises(WaitCancelled):
        ranks[0].await_everyone(SOON)


def test_single_rank_needs_no_store():
    assert Consensus(None, rank=0, size=1).agree("add", {"n": 4}, total, SOON) == {"sum": 4, "order": [4]}
