"""The process group, and how its ranks agree through the store: all send a message, rank 0 acts, all get the result."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from echelon.errors import ConfigError, EchelonError, EnvironmentProblem
from echelon.record import record
from echelon.train.rank import Rank
from echelon.train.store import SignedStore, Store, poll_until, store_secret
from echelon.untrusted import parse_json

JsonObject = dict[str, Any]
EXTRA_OUTCOME_WAIT = timedelta(seconds=20)
"""How much longer the other ranks wait than rank 0, so that rank 0 can report which ranks are missing."""
MAX_NAMED_RANKS = 16
"""Most ranks that an error message names."""
POLL_SECONDS_PER_RANK = 0.002
"""The longest pause between two polls is this times the number of ranks, so that the store gets about 500 requests a
second, from a few ranks as from thousands."""
_checkpoint_count = 0
"""Number of Checkpoints of this process. All ranks create them in the same order, so it distinguishes their keys."""


class WaitCancelled(Exception):  # noqa: N818  this process is about to exit, which is not an error
    """`leave` was called during a wait."""


class OutcomeUnknown(EnvironmentProblem):
    """Rank 0 does not answer or cannot be reached, so the outcome is unknown on this rank."""


class Consensus:
    def __init__(self, store: Store | None, *, rank: int, size: int) -> None:
        """`store` may be None if there is only one rank."""
        self._store = store
        self._rank = rank
        self._size = size
        self._round = 0
        self._visits = 0
        self._leaving = threading.Event()
        self._longest_pause = min(0.5, POLL_SECONDS_PER_RANK * size)

    def leave(self) -> None:
        """Ends every wait immediately with an exception."""
        self._leaving.set()

    def agree(
        self, what: str, mine: JsonObject, act: Callable[[list[JsonObject]], JsonObject], timeout: timedelta
    ) -> JsonObject:
        """Calls `act` on rank 0 with the messages of all ranks, in rank order. Returns its result on all ranks.

        `what` completes "rank 0 could not ..." in error messages. Raises EnvironmentProblem if a rank does not take
        part before the timeout, or if the connection to the store is lost. If `act` raises an error, rank 0 raises
        that error, and the other ranks raise EnvironmentProblem with its text.
        """
        if self._store is None or self._size == 1:
            return act([mine])
        self._round += 1
        try:
            outcome = self._agree(self._store, what, mine, act, timeout)
        except RuntimeError as error:
            raise _lost_store_error(what, error) from error
        if "absent" in outcome:
            raise EnvironmentProblem(**_missing_ranks_parts(what, outcome["absent"], self._size, timeout))
        if "error" in outcome:
            raise _rank_0_error(what, outcome["error"])
        return outcome

    def await_everyone(self, patience: timedelta) -> None:
        """Waits until all ranks have made this call as often as this one, at most for `patience`.

        Raises only WaitCancelled.
        """
        if self._store is None or self._size == 1:
            return
        self._visits += 1
        store, wanted = self._store, self._visits * self._size
        try:
            store.add("visits", 1)
            self._poll(lambda: store.add("visits", 0) >= wanted, patience)
        except RuntimeError:
            pass  # the connection to the store is lost: `agree` raises the error

    def _agree(
        self,
        store: Store,
        what: str,
        mine: JsonObject,
        act: Callable[[list[JsonObject]], JsonObject],
        timeout: timedelta,
    ) -> JsonObject:
        store.set(self._key("word", self._rank), json.dumps(mine))
        if self._rank != 0:
            return self._await_outcome(store, what, timeout)
        absent = self._await_all(store, timeout)
        if absent:
            outcome: JsonObject = {"absent": absent}
        else:
            outcome = self._act(store, act)
            self._delete_round(store)
        store.set(self._key("outcome"), json.dumps(outcome))
        return outcome

    def _act(self, store: Store, act: Callable[[list[JsonObject]], JsonObject]) -> JsonObject:
        """Sends every error of rank 0 to the other ranks. Otherwise they would wait until the timeout."""
        try:
            return act([parse_json(store.get(self._key("word", rank))) for rank in range(self._size)])
        except BaseException as error:
            store.set(self._key("outcome"), json.dumps({"error": _error_text(error)}))
            raise

    def _await_all(self, store: Store, timeout: timedelta) -> list[int]:
        """Waits for the messages of all ranks, and returns the ranks whose message is missing."""
        keys = [self._key("word", rank) for rank in range(self._size)]
        if self._poll(lambda: store.check(keys), timeout):
            return []
        return [rank for rank, key in enumerate(keys) if not store.check([key])]

    def _await_outcome(self, store: Store, what: str, timeout: timedelta) -> JsonObject:
        key = self._key("outcome")
        if not self._poll(lambda: store.check([key]), timeout + EXTRA_OUTCOME_WAIT):
            raise OutcomeUnknown(**_missing_ranks_parts(what, [0], self._size, timeout + EXTRA_OUTCOME_WAIT))
        outcome: JsonObject = parse_json(store.get(key))
        return outcome

    def _poll(self, true: Callable[[], bool], timeout: timedelta) -> bool:
        for _ in poll_until(timeout, longest=self._longest_pause):
            if self._leaving.is_set():
                raise WaitCancelled
            if true():
                return True
        return False

    def _key(self, kind: str, rank: int | None = None, round: int | None = None) -> str:
        return f"{self._round if round is None else round}/{kind}" + ("" if rank is None else f"/{rank}")

    def _delete_round(self, store: Any) -> None:
        """Deletes the keys of the previous round: every rank that is in this round has read its outcome."""
        before = self._round - 1
        if before > 0:
            for key in (self._key("outcome", round=before), *self._message_keys(before)):
                store.delete_key(key)

    def _message_keys(self, round: int) -> list[str]:
        return [self._key("word", rank, round) for rank in range(self._size)]


def _missing_ranks_parts(what: str, ranks: list[int], size: int, timeout: timedelta) -> dict[str, str]:
    """The four parts of the error about missing ranks."""
    named = ", ".join(f"rank {rank}" for rank in ranks[:MAX_NAMED_RANKS])
    more = f" and {len(ranks) - MAX_NAMED_RANKS} more" if len(ranks) > MAX_NAMED_RANKS else ""
    seconds = f"{timeout.total_seconds():g} s"
    return {
        "what": f"{len(ranks)} of {size} ranks did not join to {what} within {seconds}: {named}{more}",
        "origin": "echelon.Checkpoint",
        "why": "all ranks must save, load and stop at the same steps",
        "hint": f"look at the log of rank {ranks[0]}; Checkpoint(timeout=...) waits longer",
    }


def _rank_0_error(what: str, why: str) -> EchelonError:
    """The words "peer left" in its origin let the verdict treat this error as a consequence of rank 0's error."""
    origin = "rank 0; this peer left with the same error"
    return EnvironmentProblem(f"rank 0 could not {what}", origin=origin, why=why)


def _error_text(error: BaseException) -> str:
    if isinstance(error, EchelonError):
        return "\n".join(filter(None, (error.what, error.why)))
    return f"{type(error).__name__}: {error}"


def _lost_store_error(what: str, error: Exception) -> EchelonError:
    return OutcomeUnknown(
        f"lost the connection to the store; the ranks need it to {what}",
        origin="the rank or agent that hosted the store has exited",
        why=f"Connection closed: {str(error).partition(chr(10))[0]}",
    )


# The ranks, their store and own process groups, as torch.distributed reports them


@record
class ProcessGroupInfo:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    """Number of ranks with the same page cache, according to the launcher."""
    number: int = 0
    store: Any = None
    group: Any = None
    """The group for echelon's collectives in the main thread. It uses gloo with any backend of the script."""

    def keys(self, prefix: str) -> Any:
        """The store with a separate key prefix; None if there is only one rank."""
        if self.store is None:
            return None
        from torch.distributed import PrefixStore

        scope = f"echelon/checkpoint/{self.number}/{prefix}"
        return SignedStore(PrefixStore(scope, self.store), scope=scope, secret=store_secret())

    def print_on_rank_0(self, sentence: str) -> None:
        if self.rank == 0:
            print(f"echelon: {sentence}", file=sys.stderr, flush=True)


def create_process_group() -> ProcessGroupInfo:
    """All ranks must call this together: it creates a process group. Raises ConfigError if several ranks have none."""
    import torch.distributed as dist

    global _checkpoint_count
    _checkpoint_count += 1
    if not (dist.is_available() and dist.is_initialized()):
        _refuse_missing_group()
        return ProcessGroupInfo(number=_checkpoint_count)
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return ProcessGroupInfo(number=_checkpoint_count)
    local_rank, local_size = _local_rank_and_size(rank, size)
    return ProcessGroupInfo(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        number=_checkpoint_count,
        store=dist.distributed_c10d._get_default_store(),
        group=_new_group(),
    )


def _new_group() -> Any:
    """The group for echelon's collectives, with a description by which diagnosis leaves them out."""
    import torch.distributed as dist

    try:
        return dist.new_group(backend="gloo", group_desc="echelon")
    except TypeError:  # older versions of torch have no descriptions
        return dist.new_group(backend="gloo")


def _local_rank_and_size(rank: int, size: int) -> tuple[int, int]:
    """Local rank and size from the launcher if its rank and size equal those of the group; otherwise 0 and 1."""
    try:
        detected = Rank.from_environ(os.environ)
    except ConfigError:
        return 0, 1
    return (
        (detected.local_rank, detected.local_world_size)
        if (detected.rank, detected.world_size) == (rank, size)
        else (0, 1)
    )


def _refuse_missing_group() -> None:
    """Raises ConfigError if there are several ranks: without a process group, all would write the same files."""
    detected = Rank.from_environ(os.environ)
    if detected.world_size > 1:
        raise ConfigError(
            f"rank {detected.rank} of {detected.world_size} has no process group",
            origin=f"echelon.Checkpoint; rank and size from {detected.source}",
            hint="call echelon.join() first",
        )
