"""Parses the times of a rank's last steps, which it writes into its progress page (`train/step_clock`)."""

from __future__ import annotations

import struct

from echelon.diagnosis.pace import StepMark
from echelon.train.step_clock import HEADER_BYTES, PAGE_BYTES, SLOT_CELLS

SLOT = struct.Struct(f"{SLOT_CELLS}q")


def parse_step_marks(page: bytes) -> list[StepMark]:
    """The last steps, oldest first. Empty for a page of another form. Leaves out steps that are being written."""
    if len(page) != PAGE_BYTES:
        return []
    slots = SLOT.iter_unpack(page[HEADER_BYTES:])
    marks = [StepMark(step=step, began=began, ended=ended, input_ns=wait) for step, began, ended, wait in slots]
    return sorted(filter(_is_plausible, marks), key=lambda mark: mark.step)


def _is_plausible(mark: StepMark) -> bool:
    return mark.step >= 0 and 0 < mark.began < mark.ended and mark.input_ns <= mark.ended - mark.began
