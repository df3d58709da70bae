"""Finds the newest intact checkpoint, on all ranks together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.record import record
from echelon.train.checkpoint import file_format
from echelon.train.checkpoint.consensus import Consensus, JsonObject
from echelon.train.checkpoint.file_format import Manifest
from echelon.train.checkpoint.index import check_index
from echelon.train.checkpoint.verify import (
    DamagedCheckpoint,
    check_blocks,
    resume_candidates,
    verify_manifest_and_sizes,
)


@record
class CheckpointSearch:
    """The folder to search, and this rank's part of the check: the ranks of one node divide it among them."""

    folder: Path
    part: int
    parts: int
    timeout: timedelta
    rejected: str = ""
    """The name of a checkpoint to try last."""


@record
class FoundCheckpoint:
    folder: Path
    manifest: Manifest

    def __str__(self) -> str:
        ranks = len(self.manifest.files)
        return f"step {self.manifest.step} (saved by {ranks} {'rank' if ranks == 1 else 'ranks'})"


def newest_intact_checkpoint(
    search: CheckpointSearch, consensus: Consensus, *, step: int | None, say: Callable[[str], None]
) -> FoundCheckpoint | None:
    """The newest intact checkpoint, or the one of `step`; the same on all ranks. None if the folder has none.

    Raises EnvironmentProblem if all are damaged, and ConfigError if there is none of `step`.
    """
    listed = consensus.agree("look for checkpoints", {}, lambda _: _candidate_names(search, step), search.timeout)
    if listed["set_aside"]:
        say(f"set aside {search.rejected}: the run failed several times soon after a restore")
    problems: list[str] = []
    for name in listed["names"]:
        found, problem = _check_candidate(search, consensus, name)
        if found is not None:
            return found
        problems.append(problem)
        say(f"skipped {name}: {problem}")
    if problems:
        raise _all_damaged_error(search.folder, problems)
    if step is not None:
        raise ConfigError(f"no checkpoint of step {step}", origin=str(search.folder))
    return None


def _candidate_names(search: CheckpointSearch, step: int | None) -> JsonObject:
    names = [str(name) for name in resume_candidates(search.folder, step)]
    set_aside = step is None and search.rejected in names and len(names) > 1
    if set_aside:
        names = [name for name in names if name != search.rejected] + [search.rejected]
    return {"names": names, "set_aside": set_aside}


def _check_candidate(search: CheckpointSearch, consensus: Consensus, name: str) -> tuple[FoundCheckpoint | None, str]:
    folder = search.folder / name
    manifest: Manifest | None = None
    word: JsonObject = {}
    try:
        manifest = verify_manifest_and_sizes(folder)
        check_blocks(folder, manifest.files, part=search.part, parts=search.parts)
        for rank in range(search.part, len(manifest.files), search.parts):
            check_index(folder, manifest, rank)
        word["id"] = [manifest.time, manifest.size]
    except DamagedCheckpoint as damage:
        word["problem"] = str(damage)
    outcome = consensus.agree(f"check {name}", word, _first_problem, search.timeout)
    if outcome["problem"] is None and manifest is not None:
        return FoundCheckpoint(folder=folder, manifest=manifest), ""
    return None, str(outcome["problem"])


def _first_problem(words: Sequence[JsonObject]) -> JsonObject:
    """The first problem of any rank, or None. A checkpoint that one rank cannot read is skipped on all ranks."""
    problems = [(rank, word["problem"]) for rank, word in enumerate(words) if "problem" in word]
    if problems:
        rank, problem = problems[0]
        return {"problem": problem if rank == 0 or len(words) == 1 else f"{problem} (seen by rank {rank})"}
    alike = all(word["id"] == words[0]["id"] for word in words)
    return {
        "problem": None
        if alike
        else f"the ranks see different {file_format.MANIFEST_FILE} files; check that all hosts share the folder"
    }


def _all_damaged_error(folder: Path, problems: Sequence[str]) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"all {len(problems)} checkpoints are damaged" if len(problems) > 1 else "the only checkpoint is damaged",
        origin=str(folder),
        why="\n".join(problems),
        hint="move them to another folder to start from step 0; nothing was changed",
    )
