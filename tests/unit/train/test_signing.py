"""Values in the store that no rank of this generation signed are refused."""

import threading
from datetime import timedelta
from functools import partial

import pytest

from echelon.errors import EnvironmentProblem
from echelon.placement import STORE_KEY, Placement
from echelon.train.checkpoint.consensus import Consensus
from echelon.train.store import SignedStore, store_secret
from echelon.wire.channel import store_key

dist = pytest.importorskip("torch.distributed")
SECRET = b"the key of this generation"


def stores():
    raw = dist.HashStore()
    return SignedStore(raw, scope="a", secret=SECRET), raw


def test_signed_values_are_returned_unchanged():
    store, raw = stores()
    store.set("key", "wörd")
    assert store.get("key").decode() == "wörd"
    assert raw.get("key") != "wörd".encode()
    assert store.compare_set("first", "", "mine") == b"mine"
    assert store.compare_set("first", "", "yours") == b"mine"
    assert store.compare_set("first", "mine", "next") == b"next"
    assert store.add("count", 2) == 2
    assert store.check(["key", "first", "count"])


def copied_key(store, raw):
    store.set("other", "all here")
    raw.set("key", raw.get("other"))


def copied_scope(_, raw):
    SignedStore(raw, scope="b", secret=SECRET).set("key", "all here")


def old_generation(_, raw):
    SignedStore(raw, scope="a", secret=b"the key before").set("key", "all here")


@pytest.mark.parametrize(
    "forge",
    [
        lambda _, raw: raw.set("key", "all here"),
        lambda _, raw: raw.set("key", "0" * 64 + "all here"),
        lambda _, raw: raw.set("key", ""),
        copied_key,
        copied_scope,
        old_generation,
    ],
    ids=["unsigned", "wrong", "empty", "another key", "another scope", "another generation"],
)
def test_forged_value_is_refused(forge):
    store, raw = stores()
    forge(store, raw)
    with pytest.raises(EnvironmentProblem, match="was not written by this run"):
        store.get("key")


def test_without_a_secret_values_pass_unchanged():
    raw = dist.HashStore()
    store = SignedStore(raw, scope="a", secret=store_secret({}))
    store.set("key", "word")
    assert raw.get("key") == store.get("key") == b"word"


def test_forged_outcome_of_a_save_is_refused():
    store, raw = stores()
    ranks = [Consensus(store, rank=rank, size=2) for rank in range(2)]
    raw.set("1/outcome", '{"step": 5, "folder": "../elsewhere"}')
    with pytest.raises(EnvironmentProblem, match="was not written by this run"):
        ranks[1].agree("save step 5", {}, lambda _: {}, timedelta(seconds=5))


def test_ranks_agree_through_signed_values():
    store, _ = stores()
    told = {}

    def agree(rank):
        consensus = Consensus(store, rank=rank, size=2)
        told[rank] = consensus.agree("add", {"n": rank}, lambda words: {"sum": len(words)}, timedelta(seconds=20))

    threads = [threading.Thread(target=partial(agree, rank)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert told == {0: {"sum": 2}, 1: {"sum": 2}}


def test_each_generation_has_its_own_key_and_it_is_not_printed():
    keys = {store_key(b"token", attempt, generation) for attempt in range(3) for generation in range(3)}
    assert len(keys) == 9
    placement = Placement(
        run_id="r",
        attempt=0,
        generation=0,
        node_rank=0,
        nodes=1,
        procs_per_node=1,
        main_address="",
        main_port=0,
        store_is_up=False,
        max_restarts=0,
        store_key=store_key(b"token", 0, 0),
    )
    assert placement.store_key not in repr(placement)
    assert store_secret(placement.variables(0)) == placement.store_key.encode()
    assert placement.variables(0)[STORE_KEY]
