"""The saves of one rank, one at a time: the copy to host memory in the caller, the rest in a background thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from echelon.errors import EchelonError, EnvironmentProblem
from echelon.train.checkpoint.capture import Capture, CapturePlan, HostBuffer, capture_state
from echelon.train.checkpoint.consensus import Consensus, WaitCancelled
from echelon.train.checkpoint.write import SaveContext, SaveRequest, SaveResult, run_save
from echelon.train.progress import report_committed

OTHER_COPIES_TIMEOUT = timedelta(seconds=2)
"""How long a rank waits for the copies of the other ranks before it writes. Writing would slow them down, and training
waits for the slowest copy."""


class Saver:
    def __init__(
        self,
        context: SaveContext,
        consensus: Consensus,
        *,
        token: str,
        say: Callable[[str], None],
        asynchronous: bool = True,
    ) -> None:
        """`asynchronous` only selects how the cost of a save is counted. `token` is the same on all ranks."""
        self._context = context
        self._consensus = consensus
        self._token = token
        self._say = say
        self.asynchronous = asynchronous
        self._buffer = HostBuffer()
        self._thread: threading.Thread | None = None
        self._count = 0
        self.saved: int | None = None
        self._parent = ""
        self.problem: EchelonError | None = None
        self.longest_seconds = 0.0
        self.last: SaveResult | None = None
        """The last finished save, successful or not: both take time from training."""

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def record_loaded(self, step: int, name: str) -> None:
        """Records that training continues from this checkpoint."""
        self.saved, self._parent = step, name

    def prepare(self, plan: Callable[[], CapturePlan]) -> None:
        """Allocates the memory of the first save in advance. Later calls have no effect."""
        if not self._buffer.is_allocated:
            self._buffer.allocate(plan())

    def begin(self, plan: Callable[[], CapturePlan], *, step: int, score: float | None) -> None:
        """Starts a save, and returns when the copy is made.

        Waits first for a save in progress, so that there is never a second copy.
        """
        self.wait()
        self._count += 1
        began = time.monotonic()
        capture = capture_state(plan(), self._buffer)
        request = SaveRequest(
            step=step,
            token=f"{self._token}{self._count:x}",
            score=score,
            began=began,
            waited=time.monotonic() - began,
            parent=self._parent,
        )
        self._thread = threading.Thread(
            target=self._run_in_thread, args=(request, capture), name=f"echelon-save-{step}", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits for the save in progress. Returns False if it is not finished after that many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.busy

    def close(self, seconds: float | None) -> bool:
        """Waits for the save in progress, and then ends its waits. Returns whether it finished in time."""
        done = self.wait(seconds)
        self._consensus.leave()
        return done

    def check_saved(self, step: int) -> None:
        """Raises EnvironmentProblem if `step`, the last one of training, is not saved."""
        if step and step != self.saved:
            raise unsaved_error(step, self.saved, self.problem, self._context.folder) from None

    def _run_in_thread(self, request: SaveRequest, capture: Capture) -> None:
        try:
            self._consensus.await_everyone(OTHER_COPIES_TIMEOUT)
            saved = run_save(self._context, request, capture, self._consensus)
        except WaitCancelled:
            return  # the process is about to exit; this step is not saved
        except EchelonError as error:
            saved = SaveResult(step=request.step, problem="\n".join(filter(None, (error.what, error.why))))
        except Exception as error:  # noqa: BLE001  outermost function of the thread
            saved = SaveResult(step=request.step, problem=f"{type(error).__name__}: {error}")
        if saved.problem is not None:
            saved = replace(saved, waited=request.waited, seconds=time.monotonic() - request.began)
        self._record_result(saved)

    def _record_result(self, saved: SaveResult) -> None:
        self.last = saved
        if saved.problem is None:
            self.saved, self._parent, self.problem = saved.step, saved.folder, None
            self.longest_seconds = max(self.longest_seconds, saved.seconds)
            report_committed(saved.step)
            return
        self.problem = EnvironmentProblem(
            f"step {saved.step} was not saved; training continues, and older checkpoints are kept",
            origin=str(self._context.folder),
            why=saved.problem,
            hint="free some space there, or give Checkpoint another folder" if "space" in saved.problem else None,
        )
        self._say(str(self.problem))


def unsaved_error(step: int, saved: int | None, problem: EchelonError | None, folder: Path) -> EchelonError:
    """The error for the end of training if its last steps are not saved."""
    why = (problem.why if problem is not None else None) or "it is not known whether the last save succeeded"
    reason = why.partition("\n")[0].rpartition(": ")[2]
    return EnvironmentProblem(
        f"{_unsaved_steps_text(step, saved)} not saved: {reason}",
        origin=f"echelon.Checkpoint, {folder}",
        why=f"{why}\nthe newest saved step is {saved}" if saved is not None else why,
        hint="free some space there and run `echelon resume`" if "space" in why else None,
    )


def _unsaved_steps_text(step: int, saved: int | None) -> str:
    if saved is None or saved > step:
        return f"{step} steps are"
    return "the last step is" if saved == step - 1 else f"the last {step - saved} steps are"
