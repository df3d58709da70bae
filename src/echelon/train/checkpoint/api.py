"""`echelon.Checkpoint`: background saves, loading of the newest intact checkpoint, and a stop in time."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, final

from echelon.errors import REQUEUE, EchelonError, EnvironmentProblem
from echelon.train.checkpoint.capture import CapturePlan
from echelon.train.checkpoint.consensus import Consensus, create_process_group
from echelon.train.checkpoint.folder import RunContext, check_shared, prepare_folder
from echelon.train.checkpoint.load import CheckpointSearch, newest_intact_checkpoint
from echelon.train.checkpoint.loop import DataPosition, iterate_steps
from echelon.train.checkpoint.parts import CheckpointParts
from echelon.train.checkpoint.reader import CheckpointReader
from echelon.train.checkpoint.retention import Retention
from echelon.train.checkpoint.saver import Saver
from echelon.train.checkpoint.schedule import AUTO, SaveInterval, StepAction, StepDecider
from echelon.train.checkpoint.state import RESERVED_NAME, read_rng_states, restore_rng_states
from echelon.train.checkpoint.stopping import (
    StopListener,
    is_successful_exit,
    notice_lead_seconds,
    seconds_left,
    short_notice_warning,
)
from echelon.train.checkpoint.verify import DamagedCheckpoint
from echelon.train.checkpoint.write import SaveContext
from echelon.train.progress import ProgressBar, report_restored, step_clock

Batch = TypeVar("Batch")
DEFAULT_TIMEOUT = timedelta(minutes=30)
EXIT_WAIT_SECONDS = 60.0
"""How long the exit of the process waits for a save in progress."""
CLOSE_WAIT_SECONDS = 10.0
"""How long to wait for a save in progress after an error. It can still complete, unless a rank that it needs failed."""


@final
class Checkpoint:
    """The complete state of training: saved by all ranks together, and loaded on any number of ranks.

        with echelon.Checkpoint(model=model, optimizer=optimizer, sampler=sampler, every=500) as checkpoint:
            for batch in checkpoint.steps(loader, epochs=3):
                ...

    Entering the block loads the newest intact checkpoint, unless load() was called before. All ranks must create it,
    enter it and take their steps together.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        every: SaveInterval = AUTO,
        keep: int = 3,
        keep_every: int | None = None,
        keep_best: str | None = None,
        asynchronous: bool = True,
        timeout: timedelta = DEFAULT_TIMEOUT,
        per_rank: Mapping[str, Any] | None = None,
        **parts: Any,
    ) -> None:
        """`every` is a number of steps, a duration, "auto", or None to save only in save() and at the end. "auto"
        saves after 30 seconds, and then as often as possible while training waits for saves at most 2 % of the time.

        `keep` is the number of newest checkpoints to keep. Checkpoints of steps divisible by `keep_every` are also
        kept, and the one with the best `score` of save() if `keep_best` is "min" or "max". The default folder is the
        run's own in a run of echelon, and ./checkpoints otherwise. Parts that differ between ranks go into `per_rank`.
        The states of random number generators are always saved.
        """
        self._parts = CheckpointParts.sorted_from(parts, per_rank or {})
        run_context = RunContext.from_environ(os.environ)
        retention = Retention(last=keep, every=keep_every, best=keep_best)
        self._asynchronous, self._timeout = asynchronous, timeout
        self._group = create_process_group()
        self._main_consensus = self._make_consensus("main")
        began = self._main_consensus.agree("begin", {}, lambda _: prepare_folder(folder, run_context, timeout), timeout)
        self.folder = Path(began["folder"])
        if began["probed"]:
            check_shared(self.folder, str(began["token"]), self._main_consensus, timeout)
        place = SaveContext(
            folder=self.folder, rank=self._group.rank, run_context=run_context, retention=retention, timeout=timeout
        )
        background = self._make_consensus("background")
        token = str(began["token"])
        self._saver = Saver(place, background, token=token, say=self._say, asynchronous=asynchronous)
        self._stop_listener = StopListener()
        lead = notice_lead_seconds(run_context.run)
        self._decider = StepDecider(
            self._group, every, stop_listener=self._stop_listener, saver=self._saver, lead=lead, say=self._say
        )
        self._position = DataPosition(self._say)
        self.bar = ProgressBar(shown=self._group.rank == 0)
        self._rng: dict[str, Any] | None = None
        self._load_tried = self._closed = False
        self._next_check: float = 0
        self.clock = step_clock()
        self.step = 0
        """Number of steps done, over all starts."""
        atexit.register(self._close_at_exit)
        _open_checkpoints.append(self)

    def _make_consensus(self, prefix: str) -> Consensus:
        return Consensus(self._group.keys(prefix), rank=self._group.rank, size=self._group.size)

    # The block

    def __enter__(self) -> Checkpoint:
        self._stop_listener.listen()
        if not self._load_tried:
            self.load()
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        """Saves the last step, unless an exception interrupted it. Raises EnvironmentProblem if that fails."""
        succeeded = error is None or is_successful_exit(error)
        if succeeded:
            if self._position.close_step():
                self.step = self.clock.end_step(self.step + 1)
            self._save_last_step()
        self._close(failed=error is not None and not isinstance(error, SystemExit))
        if succeeded:
            self._saver.check_saved(self.step)

    def close(self, *, failed: bool = False) -> None:
        """Waits for the save in progress. Raises EnvironmentProblem if steps are not saved because a save failed."""
        if self._close(failed=failed) and not failed and self.problem is not None:
            self._saver.check_saved(self.step)

    def _close(self, *, failed: bool) -> bool:
        """Closes everything and leaves the consensus with the other ranks. Returns False if it was closed before."""
        if self._closed:
            return False
        self._closed = True
        self._stop_listener.close()
        self.bar.close()
        if self._saver.close(CLOSE_WAIT_SECONDS if failed else None) and not failed:
            self._wait_for_other_ranks()
        self._main_consensus.leave()
        atexit.unregister(self._close_at_exit)
        _open_checkpoints.remove(self)
        return True

    def _close_at_exit(self) -> None:
        self._saver.wait(EXIT_WAIT_SECONDS)  # the script may have failed during a save
        self._close(failed=True)

    def _wait_for_other_ranks(self) -> None:
        """Waits for all ranks, because rank 0 may host the store and must not exit before all have read from it.

        Rank 0 commits, so all ranks take over its newest saved step: then either all ranks raise an error, or none.
        """
        try:
            last = self._main_consensus.agree(
                "leave", {}, lambda _: {"saved": self.saved}, timedelta(seconds=CLOSE_WAIT_SECONDS)
            )
        except EchelonError:
            return  # a rank has exited already; no data is lost
        self._saver.saved = last["saved"]

    # Loading

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._position.epoch_in(self._parts.all)

    def load(self, step: int | None = None) -> bool:
        """Load the newest intact checkpoint, or the one of `step`. Returns False if there is none.

        All ranks first check it and agree on it. Raises EnvironmentProblem if all checkpoints are damaged.
        """
        self._load_tried = True
        self.wait()
        group = self._group
        search = CheckpointSearch(
            folder=self.folder,
            part=group.local_rank,
            parts=group.local_size,
            timeout=self._timeout,
            rejected=RunContext.from_environ(os.environ).rejected_checkpoint,
        )
        found = newest_intact_checkpoint(search, self._main_consensus, step=step, say=self._say)
        if found is None:
            return False
        try:
            with CheckpointReader.open(found.folder, found.manifest) as reader:
                self._apply(reader, found.folder)
        except DamagedCheckpoint as damage:
            raise EnvironmentProblem(
                f"{found.folder.name} changed while it was read", origin=str(self.folder), why=str(damage)
            ) from damage
        self._say(f"resumed from {found}")
        resume_warning = self._position.resume_warning(self._parts.all, len(found.manifest.files), group.size)
        if resume_warning is not None:
            self._say(resume_warning)
        return True

    def _apply(self, reader: CheckpointReader, folder: Path) -> None:
        own = reader.own(self._group.rank) if self._group.rank < reader.size else None
        state = self._parts.load_common(reader, origin=str(folder))
        self.step = int(state[RESERVED_NAME]["step"])
        self._saver.record_loaded(self.step, folder.name)
        restored, position = dict.fromkeys(self._parts.common, False), None
        if own is not None:  # a rank that did not exist then keeps its random number generators
            same_size = reader.size == self._group.size
            restored.update(self._parts.load_own(own, origin=str(folder), same_size=same_size))
            self._rng = own[RESERVED_NAME]["rng"]
            restore_rng_states(own[RESERVED_NAME]["rng"])
            position = own[RESERVED_NAME].get("position") if same_size else None
        self._position.load(state[RESERVED_NAME], own=position, restored=restored)
        self._decider.begin(self.step)
        self._next_check = 0
        report_restored(self.step, folder.name)

    # Saving

    def save(self, *, wait: bool | None = None, score: float | None = None) -> None:
        """Save this step, on all ranks. Training waits only while this rank's share is copied to host memory.

        Waits first for a save in progress, and with `wait` also for this one. A failed save prints an error and sets
        `problem`. Training continues, and older checkpoints are kept.
        """
        self._saver.begin(self._plan, step=self.step, score=score)
        self._decider.save_began(self.step)
        if wait if wait is not None else not self._asynchronous:
            self.wait()

    def wait(self) -> None:
        """Wait until no save is in progress."""
        self._saver.wait()

    @property
    def saved(self) -> int | None:
        """The newest step with a committed checkpoint."""
        return self._saver.saved

    @property
    def problem(self) -> EchelonError | None:
        """The error of the last save, the same on all ranks; None if it succeeded."""
        return self._saver.problem

    def _plan(self) -> CapturePlan:
        common = {"step": self.step, **self._position.state()}
        own = {"rng": read_rng_states(), "position": self._position.own_state()}
        return self._parts.plan_capture(common, own, rank=self._group.rank, size=self._group.size)

    # Steps

    def steps(self, loader: Iterable[Batch], *, epochs: int | None = None, until: int | None = None) -> Iterator[Batch]:
        """Yield the loader's batches from the current position. After each batch, count the step, save if a save is
        due, and after a stop notice exit with code 75.

        `epochs` is the number of epochs and `until` the number of steps after which to end, over all starts. A loader
        continues from its own state or its ElasticSampler. Otherwise the batches that are done are skipped.
        After `break` or `return` the last batch counts as done, and the end of the block saves it.
        """
        return iterate_steps(self, self._position, self._parts.all, loader, epochs=epochs, until=until)

    def after_step(self) -> None:
        """Do what `steps` does after each batch. For custom loops: call it on all ranks after every step."""
        self.step = step = self.clock.end_step(self.step + 1)
        if step >= self._next_check:  # at the same steps on all ranks
            self._do_what_is_due()

    def _do_what_is_due(self) -> None:
        match self._decider.next_action(self.step):
            case StepAction.STOP:
                self._stop()
            case StepAction.SAVE:
                self.save()
            case StepAction.NOTHING:
                self._saver.prepare(self._plan)
        self._next_check = self._decider.next_check(self.step)

    def _stop(self) -> None:
        remark = short_notice_warning(self._saver.longest_seconds, seconds_left())
        note = f"; {remark}" if remark else ""
        self._say(f"{self._stop_listener.reason}: saving and stopping at step {self.step}{note}")
        self._save_last_step()
        raise SystemExit(REQUEUE)

    def _save_last_step(self) -> None:
        """Saves this step unless it is already saved. Tries twice."""
        self.wait()
        for _ in range(2):
            if self.step and self.step != self.saved:
                self.save(wait=True)

    def resume_rng(self) -> None:
        """Restores the loaded random number generators after the loader's iterator is created: creating it draws a
        number that an uninterrupted run does not draw."""
        state, self._rng = self._rng, None
        if state is not None:
            restore_rng_states(state)

    def _say(self, sentence: str) -> None:
        self._group.print_on_rank_0(sentence)


_open_checkpoints: list[Checkpoint] = []


def close_open_checkpoints() -> None:
    """For the end of a script that never calls close(). Raises EnvironmentProblem as close() does."""
    for checkpoint in tuple(_open_checkpoints):
        checkpoint.close()
