"""For training scripts: `report`, `notice_given`, the progress bar, and the times of the last steps for the agent."""

from __future__ import annotations

import mmap
import os
import sys
import time
from time import time_ns
from typing import TextIO

HEADER_CELLS = 2
"""The step and the committed step."""
SLOTS = 32
SLOT_CELLS = 4
"""Of each of the last steps: its number, its begin and end in nanoseconds since the epoch, and its input wait."""
PAGE_CELLS = HEADER_CELLS + SLOTS * SLOT_CELLS
CELL_BYTES = 8
PAGE_BYTES = PAGE_CELLS * CELL_BYTES
HEADER_BYTES = HEADER_CELLS * CELL_BYTES
UNKNOWN = -1

Cells = list[int] | memoryview
_registered_folder: str | None = None


class StepClock:
    """Records when each step ends. Takes about two microseconds per step.

    The time is the wall clock, because torch's flight recorder uses it for collectives.
    """

    __slots__ = ("_cells", "_ended", "_has_slots", "counts_steps", "input_ns")

    def __init__(self, cells: Cells) -> None:
        """`cells` may end after the header, in a process that no agent or an older one started."""
        self._cells = cells
        self._has_slots = len(cells) >= PAGE_CELLS
        self._ended = 0
        self.input_ns = UNKNOWN
        """How long the next step has waited for its input. Reset after each step."""
        self.counts_steps = False
        """Whether a Checkpoint ends the steps. Then `report` must not end them too."""

    def end_step(self, step: int) -> int:
        """Records that `step` has ended now, and that the next one begins. Returns it."""
        now = time_ns()
        cells = self._cells
        cells[0] = step
        if self._has_slots:
            slot = HEADER_CELLS + step % SLOTS * SLOT_CELLS
            cells[slot] = UNKNOWN  # a reader ignores a slot while it is written
            cells[slot + 1] = self._ended
            cells[slot + 2] = now
            cells[slot + 3] = self.input_ns
            cells[slot] = step
        self._ended = now
        self.input_ns = UNKNOWN
        return step

    def report(self, step: int) -> None:
        """The same for a script that reports its steps itself. Reporting a step again does not end another one."""
        if self.counts_steps or step == self._cells[0]:
            self._cells[0] = step
        else:
            self.end_step(step)


def notice_given() -> bool:
    """True after the stop notice. Checks for a file, which takes about a microsecond.

    Ranks may see the notice at different steps: agree on one step before you act.
    """
    path = notice_file()
    return path is not None and notice_file_exists(path)


def notice_file() -> str | None:
    """Path of the notice file of the agent or of a `render --plain` script; None if neither started this process."""
    agent_folder = os.environ.get("ECHELON_NODE_DIR")
    if agent_folder and agent_folder != _registered_folder:
        _register_listener(agent_folder)
    folder = agent_folder or os.environ.get("JOB_STATE")
    return f"{folder}/notice" if folder else None


def _register_listener(folder: str) -> None:
    """Records once that this rank checks for the notice. If no rank does, the agent prints a warning."""
    global _registered_folder
    _registered_folder = folder
    try:
        with open(f"{folder}/listens-{os.environ['RANK']}", "w"):  # noqa: PTH123  pathlib is slow to import
            pass
    except (KeyError, OSError):
        pass  # the notice works without it


def notice_file_exists(path: str) -> bool:
    return os.access(path, os.F_OK)  # pathlib costs ten times as much


_COMMITTED_CELL = 1
_clock = StepClock([0] * HEADER_CELLS)
_page: memoryview[int] | None = None
_page_path: str | None = None


def report(step: int, *, committed: int | None = None) -> None:
    """Records that this rank has finished `step`, and that the step `committed` is saved. Takes about a microsecond.

    Does nothing in a process that echelon did not start.
    """
    page = _progress_page()
    if page is None:
        return
    _clock.report(step)
    if committed is not None:
        page[_COMMITTED_CELL] = committed


def report_committed(step: int) -> None:
    """Records which step is saved, and leaves the step of this rank unchanged."""
    page = _progress_page()
    if page is not None:
        page[_COMMITTED_CELL] = step


def report_restored(step: int, name: str) -> None:
    """Records that this rank has loaded the checkpoint `name` of `step`."""
    report(step, committed=step)
    folder, rank = os.environ.get("ECHELON_NODE_DIR"), os.environ.get("RANK")
    if folder is None or rank is None:
        return
    try:
        with open(f"{folder}/restored-{rank}", "w") as file:  # noqa: PTH123  pathlib is slow to import
            file.write(f"{step} {name}")
    except OSError:
        pass  # only the rule that goes back one checkpoint needs it


def step_clock() -> StepClock:
    """A faster `report` for a loop that reports every step: call `end_step`. The same object for all callers."""
    return StepClock([0] * HEADER_CELLS) if _progress_page() is None else _clock


def _progress_page() -> memoryview[int] | None:
    """The cells of the page. An older agent made a page that has only the header."""
    global _clock, _page, _page_path
    folder, rank = os.environ.get("ECHELON_NODE_DIR"), os.environ.get("RANK")
    if folder is None or rank is None:
        return None
    path = f"{folder}/progress-{rank}"
    if path != _page_path:
        try:
            with open(path, "r+b") as file:  # noqa: PTH123  pathlib is slow to import
                size = PAGE_BYTES if os.fstat(file.fileno()).st_size >= PAGE_BYTES else HEADER_BYTES
                _page = memoryview(mmap.mmap(file.fileno(), size)).cast("q")
                _clock, _page_path = StepClock(_page), path
        except (OSError, ValueError):
            return None
    return _page


REFRESH_SECONDS = 0.2
BAR_WIDTH = 24


class ProgressBar:
    def __init__(self, *, shown: bool, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.shown = shown and self._stream is not None and self._stream.isatty()
        self._next = 0.0
        self._last: tuple[int, float] | None = None
        self._rate = 0.0

    def show(self, step: int, saved: int | None, until: int | None) -> None:
        now = time.monotonic()
        if not self.shown or (now < self._next and step != until):
            return
        self._next = now + REFRESH_SECONDS
        if self._last is not None and now > self._last[1]:
            self._rate = (step - self._last[0]) / (now - self._last[1])
        self._last = (step, now)
        print(f"\r{progress_line(step, saved, until, self._rate)}\x1b[K", end="", file=self._stream, flush=True)

    def close(self) -> None:
        if self.shown and self._last is not None:
            print(file=self._stream, flush=True)
        self.shown = False


def progress_line(step: int, saved: int | None, until: int | None, rate: float) -> str:
    head = f"step {step}" if until is None else f"{_bar_text(step / max(1, until))} step {step}/{until}"
    left = f", {_duration_text((until - step) / rate)} left" if until is not None and rate > 0 and until > step else ""
    return f"{head}  {rate:.1f}/s{left}" + ("" if saved is None else f"  saved {saved}")


def _bar_text(share: float) -> str:
    full = round(BAR_WIDTH * min(1.0, max(0.0, share)))
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}]"


def _duration_text(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"
