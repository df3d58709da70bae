"""Finds runs by id, prefix, name, path or the scheduler's job id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from echelon.errors import ConfigError, EchelonError, EnvironmentProblem
from echelon.record import record
from echelon.run_dir import RunDir, runs_folder
from echelon.system.trust import UntrustedFile, check_run, check_trusted
from echelon.text import plural, suggest_closest

NATIVE_ID = re.compile(r"\d+(_(\d+|\[.*\])|\[\d*\])?([.;][\w.-]+)?")


def find_runs_or_jobs(word: str, environ: Mapping[str, str]) -> list[RunDir]:
    """Like `find_runs`. A word that matches no run may be the id of a job or of a whole job array."""
    try:
        return find_runs(word, environ)
    except ConfigError:
        if not NATIVE_ID.fullmatch(word):
            raise
        matches = [run for run in known_runs(environ) if matches_native_id(word, run.read_native_id())]
        if not matches:
            raise
        return [check_run(run) for run in matches]


def matches_native_id(word: str, native_id: str) -> bool:
    """Whether `word` is the id of this job or of its array. Pure."""
    whole = re.sub(r"_\d+|\[\d+\]", "", native_id)
    number = re.match(r"\d+", native_id)
    if number is None:
        return False
    array = re.sub(r"_\[.*\]|\[\]", "", word)
    names = {native_id, whole, *(re.split(r"[.;]", text)[0] for text in (native_id, whole))}
    return array in names


RUN_ID_SUFFIX = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}(-\d+)?$")
MAX_NAMED_RUNS = 5
COMMAND_LINE = "command line"


@record
class SkippedRun:
    """A run that cannot be read or is not trusted."""

    run_id: str
    problem: EchelonError


@dataclass(kw_only=True)
class RunScan:
    """The runs of the index and of the folder for runs."""

    runs: list[RunDir] = field(default_factory=list)
    """Oldest first."""
    skipped: list[SkippedRun] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Messages about folders of runs that could not be listed."""

    def notes(self) -> list[str]:
        """Messages about what is missing from `runs`."""
        by_reason: dict[str, list[str]] = {}
        for one in self.skipped:
            by_reason.setdefault(_skip_reason(one), []).append(one.run_id)
        return [
            *self.problems,
            *(f"skipped {plural(len(ids), 'run')} ({reason}): {_join_ids(ids)}" for reason, ids in by_reason.items()),
        ]


def _skip_reason(skipped: SkippedRun) -> str:
    """The same text for all runs with the same problem."""
    problem = skipped.problem
    return str(problem.why or problem.what).replace(skipped.run_id, "RUN")


def _join_ids(ids: list[str]) -> str:
    rest = len(ids) - MAX_NAMED_RUNS
    return ", ".join(sorted(ids)[:MAX_NAMED_RUNS]) + (f" and {rest} more" if rest > 0 else "")


def index_folder(environ: Mapping[str, str]) -> Path:
    """Holds one link per run, so that runs are found from any folder."""
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")  # noqa: PTH118
    return Path(base) / "echelon" / "runs"


def _check_index(environ: Mapping[str, str]) -> None:
    index = index_folder(environ)
    check_trusted([index, index.parent])


def add_to_index(run_dir: RunDir) -> None:
    """Links the run in the index. Ignores failures: without the link, the run is still found by its path."""
    try:
        folder = index_folder(os.environ)
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for part in (folder.parent, folder):
            part.mkdir(mode=0o700, exist_ok=True)
        _check_index(os.environ)
        (folder / run_dir.run_id).symlink_to(run_dir.path)
    except (OSError, UntrustedFile):
        pass


def known_runs(environ: Mapping[str, str]) -> list[RunDir]:
    """Oldest first."""
    return scan_runs(environ).runs


def scan_runs(environ: Mapping[str, str]) -> RunScan:
    """Skips runs that cannot be read or are not trusted. Deletes links to deleted runs from the index."""
    result = RunScan()
    found: dict[str, Path] = {}
    index = index_folder(environ)
    for path in (*_index_entries(environ, result), *_list_folder(runs_folder(environ), result)):
        try:
            path.joinpath("run.json").stat()
            found.setdefault(path.name, check_run(RunDir(path.resolve())).path)
        except (FileNotFoundError, NotADirectoryError):
            if path.parent == index and _was_deleted(path):
                path.unlink(missing_ok=True)
        except OSError as error:
            if RUN_ID_SUFFIX.search(path.name):  # other names are probably not runs
                result.skipped.append(SkippedRun(run_id=path.name, problem=_unreadable_error(path, error)))
        except EchelonError as problem:
            result.skipped.append(SkippedRun(run_id=path.name, problem=problem))
    result.runs = [RunDir(path) for path in sorted(found.values(), key=_age_key)]
    result.skipped = list({one.run_id: one for one in result.skipped if one.run_id not in found}.values())
    return result


def _unreadable_error(path: Path, error: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"cannot read the run {path.name}",
        origin=str(path),
        why=error.strerror or str(error),
        hint="ask its owner, or use a folder for runs of your own: ECHELON_RUNS=DIR",
    )


def _index_entries(environ: Mapping[str, str], result: RunScan) -> list[Path]:
    try:
        _check_index(environ)
    except FileNotFoundError:
        return []
    except UntrustedFile as problem:
        result.problems.append(f"ignored the index of runs: {problem.why}; try {problem.hint}")
        return []
    except OSError as error:
        result.problems.append(f"cannot read {index_folder(environ)}: {error.strerror}")
        return []
    return _list_folder(index_folder(environ), result)


def _was_deleted(link: Path) -> bool:
    """False for a run that is only out of reach: on an unmounted file system, its parent folder is missing too."""
    try:
        return link.is_symlink() and link.readlink().parent.is_dir() and not link.exists()
    except OSError:
        return False


def _list_folder(folder: Path, result: RunScan) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        result.problems.append(f"cannot read {folder}: {error.strerror}")
        return []


def _age_key(path: Path) -> tuple[float, str]:
    try:
        return RunDir(path).description.stat().st_mtime, path.name
    except OSError:
        return 0.0, path.name


def find_run(word: str, environ: Mapping[str, str]) -> RunDir:
    """Raises ConfigError if no run or more than one matches, EnvironmentProblem if the only match cannot be used."""
    if not word:
        raise ConfigError("the name of the run is empty", origin=COMMAND_LINE, hint="echelon ls lists the runs")
    if "/" in word or RunDir(Path(word)).exists():
        return _run_at(Path(word).resolve())
    known = scan_runs(environ)
    matches = _matching_ids(word, [run.run_id for run in known.runs])
    if len(matches) > 1:
        raise _ambiguous_error(word, matches)
    if not matches:
        raise _not_found_error(word, known)
    return next(run for run in known.runs if run.run_id == matches[0])


def latest_run(environ: Mapping[str, str]) -> RunDir:
    """The run that was submitted last. Raises ConfigError if there is none."""
    known = scan_runs(environ)
    if not known.runs:
        raise ConfigError(
            "there are no runs yet",
            origin=COMMAND_LINE,
            why="\n".join((f"searched {runs_folder(environ)}", *known.notes())),
            hint="echelon run SCRIPT starts one; ECHELON_RUNS=DIR names another folder for runs",
        )
    return known.runs[-1]


def _run_at(path: Path) -> RunDir:
    run = RunDir(path)
    if path.is_dir() and path.stat().st_uid == os.geteuid() and not run.exists():
        raise ConfigError(
            f"{path} is not a run directory",
            origin=COMMAND_LINE,
            why=f"it has no {run.description.name}",
            hint="echelon ls lists the runs; echelon status RUN shows their directories",
        )
    return check_run(run)


def _matching_ids(word: str, ids: Iterable[str]) -> list[str]:
    ids = list(ids)
    return (
        [run_id for run_id in ids if run_id == word]
        or [run_id for run_id in ids if run_id.startswith(word)]
        or [run_id for run_id in ids if _job_name(run_id) == word]
    )


def _not_found_error(word: str, known: RunScan) -> EchelonError:
    unusable = _matching_ids(word, [one.run_id for one in known.skipped])
    if unusable:
        return next(one.problem for one in known.skipped if one.run_id == unusable[-1])
    searched = f"searched {plural(len(known.runs), 'run')}"
    return ConfigError(
        f"no run matches {word!r}",
        origin=COMMAND_LINE,
        why="\n".join((searched, *known.notes())),
        hint=suggest_closest(word, [run.run_id for run in known.runs]) or "echelon ls lists the runs",
    )


def find_runs(word: str, environ: Mapping[str, str]) -> list[RunDir]:
    """All runs of an array by their shared id, otherwise the one matching run. Raises like `find_run`."""
    elements = [run for run in known_runs(environ) if re.fullmatch(rf"{re.escape(word)}-\d+", run.run_id)]
    if elements and _job_name(elements[0].run_id) != word:
        return sorted(elements, key=lambda run: int(run.run_id.rpartition("-")[2]))
    return [find_run(word, environ)]


def _job_name(run_id: str) -> str:
    """The id without date, time, random digits and array index."""
    return RUN_ID_SUFFIX.sub("", run_id)


def _ambiguous_error(word: str, matches: list[str]) -> ConfigError:
    return ConfigError(
        f"{word!r} matches {len(matches)} runs",
        origin=COMMAND_LINE,
        why="\n".join(matches[-8:]),
        hint=f"the newest is {matches[-1]}",
    )
