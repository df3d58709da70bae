"""The checkpoints of a run, or of any folder of them: what is there, and whether it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from echelon.errors import ConfigError
from echelon.observe.find import find_run
from echelon.run_dir import RunDir
from echelon.runtime.checkpoint.verify import Damaged, candidates, check, check_all, committed


@dataclass(frozen=True, kw_only=True)
class Listed:
    name: str
    step: int
    path: str
    size: int | None = None
    """Bytes; None where the manifest cannot be read."""
    time: float | None = None
    ranks: int | None = None
    score: float | None = None
    verified: bool | None = None
    """Every byte was read and is as it was written; None where only the manifest and the sizes were looked at."""
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where checkpoints are, and the run they belong to, if it is known."""

    folder: Path
    run: RunDir | None = None


def find_source(word: str, environ: Mapping[str, str]) -> Source:
    """A run as everywhere else, or a folder of checkpoints by its path. Raises ConfigError."""
    folder = Path(word)
    if not RunDir(folder).exists() and committed(folder):
        return Source(folder=folder.resolve())
    run = find_run(word, environ)
    return Source(folder=run.checkpoints, run=run)


def listed(folder: Path, *, verify: bool) -> list[Listed]:
    """Oldest first."""
    return [_looked_at(folder / str(name), name.step, verify=verify) for name in committed(folder)]


def _looked_at(folder: Path, step: int, *, verify: bool) -> Listed:
    try:
        manifest = check_all(folder) if verify else check(folder)
    except Damaged as damage:
        return Listed(name=folder.name, step=step, path=str(folder), verified=False, problem=str(damage))
    return Listed(
        name=folder.name,
        step=step,
        path=str(folder),
        size=manifest.size,
        time=manifest.time,
        ranks=len(manifest.files),
        score=manifest.score,
        verified=True if verify else None,
    )


def chosen(source: Source, step: int | None) -> tuple[Path, list[str]]:
    """The newest whole checkpoint of that step, or of all, and what is wrong with newer ones. Raises ConfigError."""
    problems = []
    for name in candidates(source.folder, step):
        folder = source.folder / str(name)
        try:
            check_all(folder)
        except Damaged as damage:
            problems.append(str(damage))
        else:
            return folder, problems
    what = "checkpoint" if step is None else f"checkpoint of step {step}"
    raise ConfigError(
        f"there is no whole {what}" if problems else f"there is no {what}",
        origin=str(source.folder),
        why="\n".join(problems) or None,
        hint="echelon checkpoints RUN lists them",
    )
