"""The times of a rank's last steps, in the progress page that the agent reads."""

from __future__ import annotations

from time import time_ns

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
