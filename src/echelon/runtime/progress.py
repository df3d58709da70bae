"""For the training script: how far it has come, so that a hang is told from a long step."""

from __future__ import annotations

import mmap
import os
import struct

_STEP = struct.Struct("q")
_page: mmap.mmap | None = None
_page_of: str | None = None


def report(step: int, *, committed: int | None = None) -> None:
    """Say that this rank has finished `step`, and which step is safely saved. Costs about a microsecond.

    Without echelon around it, this does nothing.
    """
    page = _open()
    if page is None:
        return
    _STEP.pack_into(page, 0, step)
    if committed is not None:
        _STEP.pack_into(page, 8, committed)


def report_committed(step: int) -> None:
    """Say which step is safely saved, and nothing of how far this rank has come since."""
    page = _open()
    if page is not None:
        _STEP.pack_into(page, 8, step)


def step_cell() -> list[int] | memoryview[int]:
    """`report` for a loop that does it at every step: what is put in here is the step."""
    page = _open()
    return [0] if page is None else memoryview(page)[: _STEP.size].cast("q")


def _open() -> mmap.mmap | None:
    global _page, _page_of
    folder, rank = os.environ.get("ECHELON_NODE_DIR"), os.environ.get("RANK")
    if folder is None or rank is None:
        return None
    path = f"{folder}/progress-{rank}"
    if path != _page_of:
        try:
            with open(path, "r+b") as file:  # noqa: PTH123  pathlib is not worth its import here
                _page, _page_of = mmap.mmap(file.fileno(), 16), path
        except (OSError, ValueError):
            return None
    return _page
