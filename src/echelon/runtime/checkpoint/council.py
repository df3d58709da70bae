"""How ranks settle a matter: each brings its word, rank 0 hears all and acts, and everybody is told the outcome.

It goes through the store, in keys of its own, so it disturbs no collective and may run in a thread; and whoever does
not come in time is named.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from echelon.errors import EchelonError, EnvironmentProblem
from echelon.runtime.meeting import Store, polls

Word = dict[str, Any]
PATIENCE = timedelta(seconds=20)
"""What the others wait longer than rank 0, so that it is rank 0 who says who is missing."""
NAMED_AT_MOST = 16
SECONDS_PER_RANK = 0.002
"""A few ranks may ask often, of thousands each asks seldom: the store hears some 500 questions a second either way."""


class Left(Exception):  # noqa: N818  this process is on its way out, which is nobody's fault
    """Somebody called `leave` while we waited."""


class Unheard(EnvironmentProblem):
    """Rank 0 is silent, or cannot be reached: how the matter ended is not known here."""


class Council:
    def __init__(self, store: Store | None, *, rank: int, size: int) -> None:
        """`store` may be None for a world of one."""
        self._store = store
        self._rank = rank
        self._size = size
        self._round = 0
        self._visits = 0
        self._leaving = threading.Event()
        self._longest_pause = min(0.5, SECONDS_PER_RANK * size)

    def leave(self) -> None:
        """Ends every wait, at once."""
        self._leaving.set()

    def settle(self, what: str, mine: Word, act: Callable[[list[Word]], Word], timeout: timedelta) -> Word:
        """Rank 0's `act` gets everybody's words, in the order of ranks; what it returns is returned to everybody.

        Raises EnvironmentProblem when somebody does not come in time, or the store is gone.
        """
        if self._store is None or self._size == 1:
            return act([mine])
        self._round += 1
        try:
            outcome = self._settle(self._store, what, mine, act, timeout)
        except RuntimeError as error:
            raise _store_gone(what, error) from error
        if "absent" in outcome:
            raise EnvironmentProblem(**_absence(what, outcome["absent"], self._size, timeout))
        if "error" in outcome:
            raise _failed(what, outcome["error"])
        return outcome

    def await_everyone(self, patience: timedelta) -> None:
        """Until all ranks have come here as often as this one, or the patience is over; raises only Left."""
        if self._store is None or self._size == 1:
            return
        self._visits += 1
        store, wanted = self._store, self._visits * self._size
        try:
            store.add("visits", 1)
            self._until(lambda: store.add("visits", 0) >= wanted, patience)
        except RuntimeError:
            pass  # the store is gone: `settle` says so

    def _settle(
        self, store: Store, what: str, mine: Word, act: Callable[[list[Word]], Word], timeout: timedelta
    ) -> Word:
        store.set(self._key("word", self._rank), json.dumps(mine))
        if self._rank != 0:
            return self._outcome(store, what, timeout)
        absent = self._await_all(store, timeout)
        if absent:
            outcome: Word = {"absent": absent}
        else:
            outcome = self._acted(store, act)
            self._forget(store)
        store.set(self._key("outcome"), json.dumps(outcome))
        return outcome

    def _acted(self, store: Store, act: Callable[[list[Word]], Word]) -> Word:
        """Whatever rank 0 raises, the others hear of it, or they would wait in vain."""
        try:
            return act([json.loads(store.get(self._key("word", rank))) for rank in range(self._size)])
        except BaseException as error:
            store.set(self._key("outcome"), json.dumps({"error": _told(error)}))
            raise

    def _await_all(self, store: Store, timeout: timedelta) -> list[int]:
        """Who has not come."""
        keys = [self._key("word", rank) for rank in range(self._size)]
        if self._until(lambda: store.check(keys), timeout):
            return []
        return [rank for rank, key in enumerate(keys) if not store.check([key])]

    def _outcome(self, store: Store, what: str, timeout: timedelta) -> Word:
        key = self._key("outcome")
        if not self._until(lambda: store.check([key]), timeout + PATIENCE):
            raise Unheard(**_absence(what, [0], self._size, timeout + PATIENCE))
        outcome: Word = json.loads(store.get(key))
        return outcome

    def _until(self, true: Callable[[], bool], timeout: timedelta) -> bool:
        for _ in polls(timeout, longest=self._longest_pause):
            if self._leaving.is_set():
                raise Left
            if true():
                return True
        return False

    def _key(self, kind: str, rank: int | None = None, round: int | None = None) -> str:
        return f"{self._round if round is None else round}/{kind}" + ("" if rank is None else f"/{rank}")

    def _forget(self, store: Any) -> None:
        """The round before: everybody who is here has read its outcome."""
        before = self._round - 1
        if before > 0:
            for key in (self._key("outcome", round=before), *self._words(before)):
                store.delete_key(key)

    def _words(self, round: int) -> list[str]:
        return [self._key("word", rank, round) for rank in range(self._size)]


def _absence(what: str, ranks: list[int], size: int, timeout: timedelta) -> dict[str, str]:
    """As an error's four parts."""
    named = ", ".join(f"rank {rank}" for rank in ranks[:NAMED_AT_MOST])
    more = f" and {len(ranks) - NAMED_AT_MOST} more" if len(ranks) > NAMED_AT_MOST else ""
    seconds = f"{timeout.total_seconds():g} s"
    return {
        "what": f"{len(ranks)} of {size} ranks did not come to {what} within {seconds}: {named}{more}",
        "origin": "echelon.Checkpoint",
        "why": "all ranks have to save, load and stop at the same steps, and these have not come",
        "hint": f"look at the log of rank {ranks[0]}; Checkpoint(timeout=...) waits longer",
    }


def _failed(what: str, why: str) -> EchelonError:
    """Its origin is worded so that the verdict on a run takes it for an echo of what rank 0 raised."""
    origin = "rank 0, and this peer of it left with the same error"
    return EnvironmentProblem(f"rank 0 could not {what}", origin=origin, why=why)


def _told(error: BaseException) -> str:
    if isinstance(error, EchelonError):
        return "\n".join(filter(None, (error.what, error.why)))
    return f"{type(error).__name__}: {error}"


def _store_gone(what: str, error: Exception) -> EchelonError:
    return Unheard(
        f"the store is gone, where the ranks meet to {what}",
        origin="the rank or agent that held it, which has ended",
        why=f"Connection closed: {str(error).partition(chr(10))[0]}",
    )
