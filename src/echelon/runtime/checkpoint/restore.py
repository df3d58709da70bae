"""The newest checkpoint that is whole: found by all ranks together, before any of them uses a byte of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.council import Council, Word
from echelon.runtime.checkpoint.manifest import Manifest
from echelon.runtime.checkpoint.verify import Damaged, candidates, check, check_blocks


@dataclass(frozen=True, kw_only=True)
class Search:
    """Where to look, and which part of the checking is this rank's: ranks of one node share it."""

    folder: Path
    part: int
    parts: int
    timeout: timedelta


@dataclass(frozen=True, kw_only=True)
class Found:
    folder: Path
    manifest: Manifest


def find(search: Search, council: Council, *, step: int | None, say: Callable[[str], None]) -> Found | None:
    """The same on all ranks; None where there is none at all. Raises EnvironmentProblem where none is whole."""
    listed = council.settle("look for checkpoints", {}, lambda _: _listed(search.folder, step), search.timeout)
    problems: list[str] = []
    for name in listed["names"]:
        found, problem = _examined(search, council, name)
        if found is not None:
            return found
        problems.append(problem)
        say(f"{name} is left out: {problem}")
    if problems:
        raise _none_whole(search.folder, problems)
    if step is not None:
        raise ConfigError(f"there is no checkpoint of step {step}", origin=str(search.folder))
    return None


def _listed(folder: Path, step: int | None) -> Word:
    return {"names": [str(name) for name in candidates(folder, step)]}


def _examined(search: Search, council: Council, name: str) -> tuple[Found | None, str]:
    folder = search.folder / name
    manifest: Manifest | None = None
    word: Word = {}
    try:
        manifest = check(folder)
        check_blocks(folder, manifest.files, part=search.part, parts=search.parts)
        word["id"] = [manifest.time, manifest.size]
    except Damaged as damage:
        word["problem"] = str(damage)
    outcome = council.settle(f"check {name}", word, _verdict, search.timeout)
    if outcome["problem"] is None and manifest is not None:
        return Found(folder=folder, manifest=manifest), ""
    return None, str(outcome["problem"])


def _verdict(words: Sequence[Word]) -> Word:
    """One rank that cannot read it is enough to leave it out, on all of them."""
    problems = [(rank, word["problem"]) for rank, word in enumerate(words) if "problem" in word]
    if problems:
        rank, problem = problems[0]
        return {"problem": problem if rank == 0 or len(words) == 1 else f"{problem} (seen by rank {rank})"}
    alike = all(word["id"] == words[0]["id"] for word in words)
    return {"problem": None if alike else f"the ranks see different {names.MANIFEST} files; is the folder shared?"}


def _none_whole(folder: Path, problems: Sequence[str]) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"none of {len(problems)} checkpoints is whole" if len(problems) > 1 else "the only checkpoint is not whole",
        origin=str(folder),
        why="\n".join(problems),
        hint="move them away to start anew; nothing was changed",
    )
