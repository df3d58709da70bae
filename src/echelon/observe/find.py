"""Runs by id, unique prefix, name or path, from any folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from echelon.config.suggest import closest
from echelon.errors import ConfigError
from echelon.run_dir import RunDir, runs_folder


def index_folder(environ: Mapping[str, str]) -> Path:
    """One link per run, so that runs are found wherever they were started."""
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")  # noqa: PTH118
    return Path(base) / "echelon" / "runs"


def remember(run_dir: RunDir) -> None:
    """Best effort: without the link the run is still found by its path."""
    try:
        folder = index_folder(os.environ)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / run_dir.run_id).symlink_to(run_dir.path)
    except OSError:
        pass


def known_runs(environ: Mapping[str, str]) -> list[RunDir]:
    """Oldest first. Links to runs that were deleted are removed on the way."""
    found: dict[str, Path] = {}
    index = index_folder(environ)
    for path in (*_entries(index), *_entries(runs_folder(environ))):
        if RunDir(path).exists():
            found.setdefault(path.name, path.resolve())
        elif path.parent == index and _was_deleted(path):
            path.unlink(missing_ok=True)
    return [RunDir(path) for path in sorted(found.values(), key=_age_key)]


def _was_deleted(link: Path) -> bool:
    """Not merely out of reach: a file system that is not mounted just now takes the run's folder away with it."""
    return link.is_symlink() and link.readlink().parent.is_dir() and not link.exists()


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _age_key(path: Path) -> tuple[float, str]:
    try:
        return RunDir(path).description.stat().st_mtime, path.name
    except OSError:
        return 0.0, path.name


def find_run(word: str, environ: Mapping[str, str]) -> RunDir:
    """Raises ConfigError when nothing or more than one run matches."""
    if "/" in word or RunDir(Path(word)).exists():
        return RunDir(Path(word).resolve()).check_trusted()
    runs = known_runs(environ)
    matches = (
        [run for run in runs if run.run_id == word]
        or [run for run in runs if run.run_id.startswith(word)]
        or [run for run in runs if _name(run) == word]
    )
    if len(matches) > 1:
        raise _ambiguous(word, matches)
    if not matches:
        raise ConfigError(
            f"no run matches {word!r}",
            why=f"looked through {len(runs)} runs",
            hint=closest(word, [run.run_id for run in runs]) or "echelon ls shows them",
        )
    return matches[0].check_trusted()


def find_runs(word: str, environ: Mapping[str, str]) -> list[RunDir]:
    """All runs of an array by the id that they share; otherwise the one run that is meant."""
    elements = [run for run in known_runs(environ) if re.fullmatch(rf"{re.escape(word)}-\d+", run.run_id)]
    if elements and _name(elements[0]) != word:
        return [run.check_trusted() for run in sorted(elements, key=lambda run: int(run.run_id.rpartition("-")[2]))]
    return [find_run(word, environ)]


def _name(run: RunDir) -> str:
    """The id less its date, time and four random letters, and its index in an array."""
    return re.sub(r"-\d{8}-\d{6}-[0-9a-f]{4}(-\d+)?$", "", run.run_id)


def _ambiguous(word: str, matches: list[RunDir]) -> ConfigError:
    newest = matches[-1].run_id
    listed = "\n".join(run.run_id for run in matches[-8:])
    return ConfigError(f"{word!r} matches {len(matches)} runs", why=listed, hint=f"the newest is {newest}")
