"""Arrays: one submission, a run of its own for each index. `0-9`, `1,3,5`, `0-20:5`, `0-99%4`."""

from __future__ import annotations

import re
from pathlib import Path

from echelon.command import variable
from echelon.run_dir import RunDir

MOST = 100_000
_PART = re.compile(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?")


def parse_indices(text: str) -> tuple[int, ...]:
    """Every index once, in order; how many may run at once is the scheduler's business. Raises ValueError."""
    parts, percent, limit = text.partition("%")
    if percent and not re.fullmatch(r"[1-9]\d*", limit):
        raise ValueError(f"{limit!r} is no number of runs at once")
    found: set[int] = set()
    for part in parts.split(","):
        match = _PART.fullmatch(part)
        if match is None or not match.group().isascii():
            raise ValueError(f"{part!r} is neither an index nor a range of them")
        first, last, step = int(match.group(1)), int(match.group(2) or match.group(1)), int(match.group(3) or 1)
        if not 0 <= last - first < MOST * step or len(found) > MOST:
            raise ValueError(f"{part!r} runs backwards, or too far")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def element(base: Path, index: int) -> RunDir:
    """The run of one index."""
    return RunDir(base.with_name(f"{base.name}-{index}"))


def array_of(run_dir: RunDir) -> str:
    """The id that all runs of one array share."""
    return run_dir.run_id.rpartition("-")[0]


def any_element(base: Path, index_variable: str) -> RunDir:
    """The run that the one script of all of them finds by its index, when it runs."""
    return RunDir(base.with_name(f"{base.name}-{variable(index_variable)}"))
