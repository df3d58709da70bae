"""`echelon.Checkpoint`: saves while training goes on, loads what is whole, and stops in time."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, final

from echelon.errors import EchelonError, EnvironmentProblem
from echelon.exit_codes import REQUEUE
from echelon.runtime.checkpoint import probe, rng
from echelon.runtime.checkpoint.bar import Bar
from echelon.runtime.checkpoint.council import Council
from echelon.runtime.checkpoint.fence import Standing
from echelon.runtime.checkpoint.folder import prepared
from echelon.runtime.checkpoint.parts import (
    RESERVED,
    alike_in,
    check_names,
    check_parts,
    load_states,
    states_of,
    targets_in,
)
from echelon.runtime.checkpoint.reader import Reader
from echelon.runtime.checkpoint.restore import Search, find
from echelon.runtime.checkpoint.retention import Retention
from echelon.runtime.checkpoint.rounds import Due, Rounds
from echelon.runtime.checkpoint.save import Place
from echelon.runtime.checkpoint.saver import Saver
from echelon.runtime.checkpoint.snapshot import Plan, planned
from echelon.runtime.checkpoint.steps import Position, walk
from echelon.runtime.checkpoint.stopping import Alarm, asked_lead, lead_remark, seconds_left
from echelon.runtime.checkpoint.surroundings import look_around
from echelon.runtime.checkpoint.tree import Flattened
from echelon.runtime.checkpoint.verify import Damaged
from echelon.runtime.progress import report, step_cell

Batch = TypeVar("Batch")

EVERY = timedelta(minutes=10)
TIMEOUT = timedelta(minutes=30)
AT_EXIT_SECONDS = 60.0
LAST_WAIT_SECONDS = 10.0
"""After an error a save under way may still come to its end, unless it was the error of a rank it needs."""


@final
class Checkpoint:
    """All that training needs to go on elsewhere: saved by all ranks together, and loaded by any number of them.

        with echelon.Checkpoint(model=model, optimizer=optimizer, sampler=sampler, every=500) as checkpoint:
            for batch in checkpoint.steps(loader, epochs=3):
                ...

    Entering the block loads the newest checkpoint that is whole, unless load() was called before. Every rank has to
    make it, enter it and take its steps together with the others.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        every: int | timedelta | None = EVERY,
        keep: int = 3,
        keep_every: int | None = None,
        keep_best: str | None = None,
        asynchronous: bool = True,
        timeout: timedelta = TIMEOUT,
        per_rank: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        """`every` is a number of steps, a duration, or None for never: then it saves when told to, and at the end.

        `keep` is the number of newest checkpoints to keep; also kept are those of steps divisible by `keep_every`,
        and the one with the best score that save() was given, where `keep_best` is "min" or "max". The folder is
        the run's own under echelon, and ./checkpoints elsewhere. What each rank has for itself goes into
        `per_rank`; random number generators are there already.
        """
        self._parts, self._per_rank = dict(parts), dict(per_rank or {})
        check_parts({**self._parts, **self._per_rank}, "echelon.Checkpoint")
        standing = Standing.from_environ(os.environ)
        retention = Retention(last=keep, every=keep_every, best=keep_best)
        self._asynchronous, self._timeout = asynchronous, timeout
        self._around = look_around()
        self._main = self._council("main")
        began = self._main.settle("begin", {}, lambda _: prepared(folder, standing, timeout), timeout)
        self.folder = Path(began["folder"])
        if began["probed"]:
            probe.check(self.folder, str(began["token"]), self._main, timeout)
        place = Place(
            folder=self.folder, rank=self._around.rank, standing=standing, retention=retention, timeout=timeout
        )
        self._saver = Saver(place, self._council("background"), token=str(began["token"]), say=self._say)
        self._alarm = Alarm()
        lead = asked_lead(standing.run)
        self._rounds = Rounds(self._around, every, alarm=self._alarm, saver=self._saver, lead=lead, say=self._say)
        self._position = Position()
        self.bar = Bar(shown=self._around.rank == 0)
        self._rng: dict[str, Any] | None = None
        self._looked = self._closed = False
        self._next_look: float = 0
        self._told = step_cell()
        self.step = 0
        """Steps done, over all starts."""
        atexit.register(self._close_at_exit)

    def _council(self, prefix: str) -> Council:
        return Council(self._around.keys(prefix), rank=self._around.rank, size=self._around.size)

    # The block

    def __enter__(self) -> Checkpoint:
        self._alarm.listen()
        if not self._looked:
            self.load()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._position.open:
            self._say("the loop was left inside a step, which is not saved; steps(until=N) ends after one")
        elif kind is None and self.step:
            self._save_the_last()
        self.close(failed=kind is not None and kind is not SystemExit)

    def close(self, *, failed: bool = False) -> None:
        """Waits for the save under way, and tells the others that this rank needs no more of them."""
        if self._closed:
            return
        self._closed = True
        self._alarm.close()
        self.bar.close()
        if self._saver.close(LAST_WAIT_SECONDS if failed else None) and not failed:
            self._say_goodbye()
        self._main.leave()
        atexit.unregister(self._close_at_exit)

    def _close_at_exit(self) -> None:
        """Nobody closed it, and whether the script failed is not known here: a save under way gets its chance."""
        self._saver.wait(AT_EXIT_SECONDS)
        self.close(failed=True)

    def _say_goodbye(self) -> None:
        """Rank 0 may hold the store, and stays until everybody has read the last outcome in it."""
        try:
            self._main.settle("leave", {}, lambda _: {}, timedelta(seconds=LAST_WAIT_SECONDS))
        except EchelonError:
            pass  # somebody left without a word; nothing is lost by it

    # Loading

    @property
    def epoch(self) -> int:
        """The epoch that training stands in."""
        return self._position.epoch_in(self._parts)

    def load(self, step: int | None = None) -> bool:
        """Load the newest checkpoint that is whole, or that of `step`; False where there is none.

        All ranks check it and agree on it before any of them uses a byte. Raises EnvironmentProblem where there are
        checkpoints and all are damaged.
        """
        self._looked = True
        self.wait()
        around = self._around
        search = Search(folder=self.folder, part=around.local_rank, parts=around.local_size, timeout=self._timeout)
        found = find(search, self._main, step=step, say=self._say)
        if found is None:
            return False
        try:
            with Reader.open(found.folder, found.manifest) as reader:
                self._apply(reader, found.folder)
        except Damaged as damage:
            raise EnvironmentProblem(
                f"{found.folder.name} changed while it was read", origin=str(self.folder), why=str(damage)
            ) from damage
        self._say(f"goes on from {found.folder.name}, saved by {len(found.manifest.files)} ranks")
        doubt = self._position.doubt(self._parts, len(found.manifest.files), around.size)
        if doubt is not None:
            self._say(doubt)
        return True

    def _apply(self, reader: Reader, folder: Path) -> None:
        origin = str(folder)
        check_names(self._parts, reader.names, origin=origin)
        own = reader.own(self._around.rank) if self._around.rank < reader.size else None
        state = reader.common(targets_in(self._parts))
        load_states(self._parts, state, origin=origin)
        self.step = int(state[RESERVED]["step"])
        self._saver.loaded(self.step, folder.name)
        self._position.load(state[RESERVED])
        if own is not None:  # a rank that is new keeps the generators it has
            check_names(self._per_rank, list(own), origin=origin)
            load_states(self._per_rank, own, origin=origin)
            self._rng = own[RESERVED]["rng"]
            rng.restore(own[RESERVED]["rng"])
        self._rounds.begin(self.step)
        self._next_look = 0
        report(self.step, committed=self.step)

    # Saving

    def save(self, *, wait: bool | None = None, score: float | None = None) -> None:
        """Save this step, on all ranks. Training waits only while this rank's share is copied to host memory.

        Waits first for a save that is still under way; with `wait` for this one too. A save that fails is said, and
        told in `problem`: training goes on, and older checkpoints stay.
        """
        self._saver.begin(self._plan, step=self.step, score=score)
        self._rounds.save_began(self.step)
        if wait if wait is not None else not self._asynchronous:
            self.wait()

    def wait(self) -> None:
        """Until no save is under way."""
        self._saver.wait()

    @property
    def saved(self) -> int | None:
        """The newest step that is safely on disk."""
        return self._saver.saved

    @property
    def problem(self) -> EchelonError | None:
        """Why the last save failed, on every rank; None when it did not."""
        return self._saver.problem

    def _plan(self) -> Plan:
        ours = {"step": self.step, **self._position.state()}
        common = Flattened({RESERVED: ours, **states_of(self._parts)})
        own = Flattened({RESERVED: {"rng": rng.captured()}, **states_of(self._per_rank)})
        return planned(common, own, self._around.rank, self._around.size, alike=alike_in(self._parts))

    # Steps

    def steps(self, loader: Iterable[Batch], *, epochs: int | None = None, until: int | None = None) -> Iterator[Batch]:
        """The loader's batches, from where training stands; after each one it is counted, saved when that is due,
        and training is stopped with exit code 75 when that was asked for.

        With `epochs` it goes through the loader until that many epochs are done; with `until` it ends after that
        many steps over all starts. An ElasticSampler moves on by itself.
        """
        return walk(self, self._position, self._parts, loader, epochs=epochs, until=until)

    def after_step(self) -> None:
        """What `steps` does after each batch, for loops of your own; on all ranks after the same steps."""
        self.step = step = self.step + 1
        self._told[0] = step
        if step >= self._next_look:
            self._look()

    def _look(self) -> None:
        """At the few steps where there is something to agree on or to save; the same ones on all ranks."""
        match self._rounds.due(self.step):
            case Due.STOP:
                self._stop()
            case Due.SAVE:
                self.save()
            case Due.NOTHING:
                self._saver.get_ready(self._plan)
        self._next_look = self._rounds.next_look(self.step)

    def _stop(self) -> None:
        remark = lead_remark(self._saver.longest_seconds, seconds_left())
        self._say(f"{self._alarm.reason}: stops at step {self.step}" + (f", though {remark}" if remark else ""))
        self._save_the_last()
        raise SystemExit(REQUEUE)

    def _save_the_last(self) -> None:
        """Unless it is there already, or just being saved."""
        self.wait()
        if self.step != self.saved:
            self.save(wait=True)

    def resume_rng(self) -> None:
        """After a loader has begun: making its iterator has drawn a number that the uninterrupted run did not draw."""
        state, self._rng = self._rng, None
        if state is not None:
            rng.restore(state)

    def _say(self, sentence: str) -> None:
        if self._around.rank == 0:
            print(f"echelon: {sentence}", file=sys.stderr, flush=True)
