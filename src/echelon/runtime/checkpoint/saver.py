"""The saves of one rank, one at a time: the copy to host memory here and now, the rest in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from echelon.errors import EchelonError, EnvironmentProblem
from echelon.runtime.checkpoint.council import Council, Left
from echelon.runtime.checkpoint.save import Order, Place, Saved, carry_out
from echelon.runtime.checkpoint.snapshot import HostBuffer, Plan, Snapshot, take
from echelon.runtime.progress import report_committed

AFTER_COPIES = timedelta(seconds=2)
"""What a rank waits at most for the others' copies before it writes: training waits for the slowest of them."""


class Saver:
    def __init__(self, place: Place, council: Council, *, token: str, say: Callable[[str], None]) -> None:
        self._place = place
        self._council = council
        self._token = token
        self._say = say
        self._buffer = HostBuffer()
        self._thread: threading.Thread | None = None
        self._count = 0
        self.saved: int | None = None
        self._parent = ""
        self.problem: EchelonError | None = None
        self.longest_seconds = 0.0

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def loaded(self, step: int, name: str) -> None:
        """Training goes on from this checkpoint."""
        self.saved, self._parent = step, name

    def get_ready(self, plan: Callable[[], Plan]) -> None:
        """For the first save, once: its memory is taken ahead of it."""
        if not self._buffer.ready:
            self._buffer.warm(plan())

    def begin(self, plan: Callable[[], Plan], *, step: int, score: float | None) -> None:
        """Returns when the copy is made. One that is still under way is waited for: there is never a second copy."""
        self.wait()
        self._count += 1
        order = Order(
            step=step, token=f"{self._token}{self._count:x}", score=score, began=time.monotonic(), parent=self._parent
        )
        snapshot = take(plan(), self._buffer)
        self._thread = threading.Thread(
            target=self._finish, args=(order, snapshot), name=f"echelon-save-{step}", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """False where a save is still under way after that long."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.busy

    def close(self, seconds: float | None) -> bool:
        """Whether the last save came to its end in time; after this nothing of it is waited for."""
        done = self.wait(seconds)
        self._council.leave()
        return done

    def _finish(self, order: Order, snapshot: Snapshot) -> None:
        try:
            self._council.await_everyone(AFTER_COPIES)
            saved = carry_out(self._place, order, snapshot, self._council)
        except Left:
            return  # the process ends, and leaves no checkpoint of this step
        except EchelonError as error:
            saved = Saved(step=order.step, problem="\n".join(filter(None, (error.what, error.why))))
        except Exception as error:  # noqa: BLE001  the outermost function of the thread
            saved = Saved(step=order.step, problem=f"{type(error).__name__}: {error}")
        self._take_in(saved)

    def _take_in(self, saved: Saved) -> None:
        if saved.problem is None:
            self.saved, self._parent, self.problem = saved.step, saved.folder, None
            self.longest_seconds = max(self.longest_seconds, saved.seconds)
            report_committed(saved.step)
            return
        self.problem = EnvironmentProblem(
            f"step {saved.step} was not saved; training goes on, and older checkpoints stay",
            origin=str(self._place.folder),
            why=saved.problem,
            hint="free some space there, or give Checkpoint another folder" if "space" in saved.problem else None,
        )
        self._say(str(self.problem))
