"""Lists and verifies the checkpoints of a run or of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from echelon.errors import ConfigError
from echelon.observe.find import find_run
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.train.checkpoint.verify import (
    DamagedCheckpoint,
    committed_checkpoints,
    resume_candidates,
    verify_checkpoint,
    verify_manifest_and_sizes,
)


@record
class CheckpointEntry:
    name: str
    step: int
    path: str
    size: int | None = None
    """Bytes; None if the manifest cannot be read."""
    time: float | None = None
    ranks: int | None = None
    score: float | None = None
    verified: bool | None = None
    """True if all checksums match, False if damaged, None if only the manifest and the sizes were checked."""
    problem: str | None = None


@record
class CheckpointSource:
    """A folder of checkpoints, and the run that it belongs to, if known."""

    folder: Path
    run: RunDir | None = None


def find_checkpoint_source(word: str, environ: Mapping[str, str]) -> CheckpointSource:
    """`word` is a run, as for `find_run`, or the path of a folder of checkpoints. Raises ConfigError."""
    folder = Path(word)
    if not RunDir(folder).exists() and committed_checkpoints(folder):
        return CheckpointSource(folder=folder.resolve())
    run = find_run(word, environ)
    return CheckpointSource(folder=run.checkpoints, run=run)


def list_checkpoints(folder: Path, *, verify: bool) -> list[CheckpointEntry]:
    """Oldest first."""
    return [_inspect_checkpoint(folder / str(name), name.step, verify=verify) for name in committed_checkpoints(folder)]


def _inspect_checkpoint(folder: Path, step: int, *, verify: bool) -> CheckpointEntry:
    try:
        manifest = verify_checkpoint(folder) if verify else verify_manifest_and_sizes(folder)
    except DamagedCheckpoint as damage:
        return CheckpointEntry(name=folder.name, step=step, path=str(folder), verified=False, problem=str(damage))
    return CheckpointEntry(
        name=folder.name,
        step=step,
        path=str(folder),
        size=manifest.size,
        time=manifest.time,
        ranks=len(manifest.files),
        score=manifest.score,
        verified=True if verify else None,
    )


def newest_intact_checkpoint(source: CheckpointSource, step: int | None) -> tuple[Path, list[str]]:
    """The newest intact checkpoint, of `step` if given, and the problems of newer ones. Raises ConfigError."""
    problems = []
    for name in resume_candidates(source.folder, step):
        folder = source.folder / str(name)
        try:
            verify_checkpoint(folder)
        except DamagedCheckpoint as damage:
            problems.append(str(damage))
        else:
            return folder, problems
    what = "checkpoint" if step is None else f"checkpoint of step {step}"
    raise ConfigError(
        f"no intact {what}" if problems else f"no {what}",
        origin=str(source.folder),
        why="\n".join(problems) or None,
        hint="echelon checkpoints RUN lists the checkpoints",
    )
