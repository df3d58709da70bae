"""Ranks that settle a matter through a store: all are told the same, and who does not come is named."""

import threading
from datetime import timedelta
from functools import partial

import pytest

from echelon.errors import EnvironmentProblem
from echelon.node.faults import is_echo
from echelon.node.messages import ErrorRecord, Exit
from echelon.runtime.checkpoint import council as module
from echelon.runtime.checkpoint.council import Council, Left

dist = pytest.importorskip("torch.distributed")
SOON = timedelta(seconds=20)


def together(*work):
    """What each returned or raised, each in a thread of its own."""
    results = [None] * len(work)

    def run(place):
        try:
            results[place] = work[place]()
        except Exception as error:  # noqa: BLE001  it is looked at below
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def councils(size):
    store = dist.HashStore()
    return [Council(store, rank=rank, size=size) for rank in range(size)], store


def total(words):
    return {"sum": sum(word["n"] for word in words), "order": [word["n"] for word in words]}


def test_everybody_is_told_what_rank_0_made_of_all_words_round_after_round():
    ranks, store = councils(3)
    for number in range(20):
        words = [{"n": rank * number} for rank in range(3)]
        told = together(*(partial(c.settle, "add", word, total, SOON) for c, word in zip(ranks, words, strict=True)))
        assert told == [{"sum": 3 * number, "order": [0, number, 2 * number]}] * 3
    assert store.num_keys() <= 2 * 4, "old rounds are forgotten"


def test_who_does_not_come_is_named_to_those_who_do(monkeypatch):
    ranks, _ = councils(4)
    short = timedelta(seconds=0.3)
    told = together(*(lambda c=c: c.settle("save step 7", {"n": 1}, total, short) for c in (ranks[0], ranks[2])))
    assert all(isinstance(error, EnvironmentProblem) for error in told)
    assert told[0].what == told[1].what == "2 of 4 ranks did not come to save step 7 within 0.3 s: rank 1, rank 3"
    late = ranks[1].settle
    with pytest.raises(EnvironmentProblem, match="rank 1, rank 3"):
        late("save step 7", {"n": 1}, total, short)


def test_without_rank_0_nobody_waits_forever(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", timedelta(0))
    ranks, _ = councils(2)
    with pytest.raises(EnvironmentProblem, match=r"did not come to load within 0\.1 s: rank 0"):
        ranks[1].settle("load", {}, total, timedelta(seconds=0.1))


def test_what_rank_0_raises_the_others_hear_of():
    ranks, _ = councils(2)

    def fails(_):
        raise OSError("no room")

    told = together(*(lambda c=c: c.settle("begin", {}, fails, SOON) for c in ranks))
    assert isinstance(told[0], OSError)
    assert isinstance(told[1], EnvironmentProblem)
    assert (told[1].what, told[1].why) == ("rank 0 could not begin", "OSError: no room")
    record = ErrorRecord(type="EnvironmentProblem", message=str(told[1]), time=0.0, traceback="")
    assert is_echo(Exit(rank=1, host="a", code=1, time=0.0, error=record)), "the verdict is on what rank 0 raised"


def test_of_an_error_of_ours_the_others_hear_what_and_why():
    ranks, _ = councils(2)

    def fails(_):
        raise EnvironmentProblem("another job saves there", why="the lock is held")

    told = together(*(lambda c=c: c.settle("begin", {}, fails, SOON) for c in ranks))
    assert told[1].why == "another job saves there\nthe lock is held"


def test_leaving_ends_the_wait():
    ranks, _ = councils(2)
    waiting = threading.Timer(0.1, ranks[1].leave)
    waiting.start()
    with pytest.raises(Left):
        ranks[1].settle("begin", {}, total, SOON)
    waiting.join()


def test_waiting_for_everyone_is_over_when_all_are_there_or_patience_is():
    ranks, _ = councils(3)
    for _ in range(3):
        together(*(partial(council.await_everyone, SOON) for council in ranks))
    together(*(partial(council.await_everyone, timedelta(seconds=0.2)) for council in ranks[:2]))
    ranks[0].leave()
    with pytest.raises(Left):
        ranks[0].await_everyone(SOON)


def test_alone_there_is_nobody_to_ask():
    assert Council(None, rank=0, size=1).settle("add", {"n": 4}, total, SOON) == {"sum": 4, "order": [4]}
