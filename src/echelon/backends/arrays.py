"""Job arrays: one submission, one run per index. `0-9`, `1,3,5`, `0-20:5`, `0-99%4`."""

from __future__ import annotations

import re
from pathlib import Path

from echelon.run_dir import RunDir
from echelon.shell import shell_variable

MAX_INDICES = 100_000
_PART = re.compile(r"(\d+)(?:-(\d+)(?::([1-9]\d*))?)?")


def parse_indices(text: str) -> tuple[int, ...]:
    """Unique indices in ascending order. The scheduler applies the limit after `%`. Raises ValueError."""
    parts, percent, limit = text.partition("%")
    if percent and not re.fullmatch(r"[1-9]\d*", limit):
        raise ValueError(f"{limit!r} is not a number of simultaneous runs")
    found: set[int] = set()
    for part in parts.split(","):
        match = _PART.fullmatch(part)
        if match is None or not match.group().isascii():
            raise ValueError(f"{part!r} is not an index or a range")
        first, last, step = int(match.group(1)), int(match.group(2) or match.group(1)), int(match.group(3) or 1)
        if not 0 <= last - first < MAX_INDICES * step or len(found) > MAX_INDICES:
            raise ValueError(f"{part!r} is reversed or is too long")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def array_run(base: Path, index: int) -> RunDir:
    """The directory of the run with this index."""
    return RunDir(base.with_name(f"{base.name}-{index}"))


def array_id(run_dir: RunDir) -> str:
    """The id that all runs of one array share."""
    return run_dir.run_id.rpartition("-")[0]


def array_run_by_variable(base: Path, index_variable: str) -> RunDir:
    """The directory of a run, with the scheduler's index variable in its name.

    All runs of an array share one script. The shell expands the variable when the script runs.
    """
    return RunDir(base.with_name(f"{base.name}-{shell_variable(index_variable)}"))
