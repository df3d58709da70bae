"""Which checkpoints to keep, and the removal of the others."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import ConfigError
from echelon.record import record
from echelon.train.checkpoint import file_format
from echelon.train.checkpoint.file_format import CheckpointName
from echelon.train.checkpoint.verify import DamagedCheckpoint, committed_checkpoints, verify_manifest_and_sizes

MIN_KEPT = 2
"""Smallest number of checkpoints to keep: the newest one may prove damaged when it is needed."""


@record
class CheckpointSummary:
    """The facts about a checkpoint that retention needs. `good` is False if it is damaged."""

    name: CheckpointName
    good: bool
    score: float | None = None
    parent: str | None = None


@record
class Retention:
    last: int = 3
    every: int | None = None
    best: str | None = None
    """`min` or `max`: keeps the checkpoint with the smallest or largest score."""

    def __post_init__(self) -> None:
        if self.last < MIN_KEPT:
            raise _retention_error(
                f"keep is {self.last}", f"at least {MIN_KEPT} are kept: the newest may turn out damaged"
            )
        if self.every is not None and self.every < 1:
            raise _retention_error(f"keep_every is {self.every}", "it is a number of steps, 1 or more")
        if self.best not in (None, "min", "max"):
            raise _retention_error(f"keep_best is {self.best!r}", "it is 'min' or 'max'")


def _retention_error(what: str, why: str) -> ConfigError:
    return ConfigError(what, origin="echelon.Checkpoint", why=why)


def removable_checkpoints(present: Sequence[CheckpointSummary], rules: Retention) -> list[CheckpointName]:
    """The checkpoints to remove. `present` and the result are in commit order, oldest first: a later commit may have an
    earlier step.

    A damaged checkpoint does not count as kept, and is removed after enough good ones follow it. The parent of the
    newest checkpoint is kept: after a return to step 500, it is the only one to fall back on if 600 proves damaged.
    """
    good = [kept for kept in present if kept.good]
    if len(good) < rules.last:
        return []
    older = present[: present.index(good[-rules.last])]
    milestones = {kept.name for kept in good if rules.every and kept.name.step % rules.every == 0}
    origin = {kept.name for kept in good if str(kept.name) == good[-1].parent}
    precious = milestones | origin | _best_scored(good, rules)
    return [kept.name for kept in older if kept.name not in precious]


def _best_scored(good: Sequence[CheckpointSummary], rules: Retention) -> set[CheckpointName]:
    scored = [(kept.score, kept.name) for kept in reversed(good) if kept.score is not None]
    if rules.best is None or not scored:
        return set()
    sign = 1 if rules.best == "min" else -1
    return {min(scored, key=lambda pair: sign * pair[0])[1]}  # the newest of equal scores


def remove_old_checkpoints(folder: Path, rules: Retention, *, new: str) -> list[CheckpointName]:
    """Removes old checkpoints, but never the new one, and returns their names.

    The manifests and file sizes of all checkpoints are checked first, so that a damaged one does not count as kept.
    """
    present = [_summarize_checkpoint(folder, name) for name in committed_checkpoints(folder)]
    gone = [name for name in removable_checkpoints(present, rules) if str(name) != new]
    for name in gone:
        discard_folder(folder / str(name))
    return gone


def _summarize_checkpoint(folder: Path, name: CheckpointName) -> CheckpointSummary:
    try:
        manifest = verify_manifest_and_sizes(folder / str(name))
    except DamagedCheckpoint:
        return CheckpointSummary(name=name, good=False)
    return CheckpointSummary(name=name, good=True, score=manifest.score, parent=manifest.parent)


def discard_folder(path: Path) -> None:
    """Removes a folder. Renames it first, so that no process can commit a half-deleted folder. Ignores OSError."""
    gone = path.with_name(file_format.discarded_folder_name(os.urandom(4).hex()))
    with contextlib.suppress(OSError):
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Removes the folders that interrupted saves left behind."""
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            if file_format.is_leftover(path.name):
                discard_folder(path)
