"""Finds a script, module or command that cannot start, before anything is submitted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from echelon.backends import backend
from echelon.config.environment import is_shared
from echelon.errors import ConfigError
from echelon.job import Job, Script, ScriptKind
from echelon.shell import format_command
from echelon.system.machine import find_program
from echelon.text import suggest_closest

COMMAND_LINE = "command line"
MODULE_SECONDS = 20.0
FIND_MODULE = Path(__file__).with_name("find_module.py")


def check_script(script: Script | None, command_path: str) -> Script:
    """Raises ConfigError for a missing script and for a file that Python cannot run."""
    if script is None:
        raise ConfigError("no script was given", origin=COMMAND_LINE, hint=f"{command_path} train.py")
    if script.kind is ScriptKind.FILE:
        _check_file(script.target, Path(script.target), command_path)
    return script


def _check_file(name: str, path: Path, command_path: str) -> None:
    if not os.path.exists(path):  # noqa: PTH110  Path.exists raises PermissionError before Python 3.14
        raise ConfigError(
            f"no script at {name}",
            origin=COMMAND_LINE,
            why=f"searched in {Path.cwd()}",
            hint=_suggest_script(path) or f"{command_path} PATH/TO/train.py",
        )
    if path.is_dir() and not (path / "__main__.py").exists():
        raise _folder_error(name, path, command_path)
    if not os.access(path, os.R_OK):
        raise ConfigError(
            f"cannot read {name}",
            origin=COMMAND_LINE,
            why="Permission denied",
            hint=format_command(("chmod", "u+r", name)),
        )
    if path.suffix != ".py" and path.is_file() and _is_program(path):
        raise ConfigError(
            f"{name} is not a Python script",
            origin=COMMAND_LINE,
            why="it is a program or a script of another language",
            hint=f"{command_path} -- {format_command((name if '/' in name else './' + name,))}",
        )


def _folder_error(name: str, path: Path, command_path: str) -> ConfigError:
    scripts = sorted(entry.name for entry in _list_folder(path) if entry.suffix == ".py")
    likely = next((one for one in ("train.py", "main.py") if one in scripts), scripts[0] if scripts else "train.py")
    return ConfigError(
        f"{name} is a folder, not a script",
        origin=COMMAND_LINE,
        why=f"it has no __main__.py; its scripts: {', '.join(scripts[:5])}" if scripts else "it has no Python scripts",
        hint=f"{command_path} {format_command((str(path / likely),))}",
    )


def _suggest_script(path: Path) -> str | None:
    return suggest_closest(path.name, [entry.name for entry in _list_folder(path.parent) if entry.suffix == ".py"])


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(64)
    return head.startswith(b"\x7fELF") or (head.startswith(b"#!") and b"python" not in head.split(b"\n")[0])


def check_target(job: Job, environ: Mapping[str, str], *, here: bool) -> str | None:
    """Raises if the job's module or command is certainly missing; returns a warning if the nodes may have it.

    `here`: the ranks run on this machine. Containers and ssh hosts are not checked: they may have what this
    machine lacks.
    """
    if job.is_enclosed or not backend(job.scheduler).shares_file_system or job.script.kind is ScriptKind.FILE:
        return None
    environ = {**environ, **job.env}
    check = _missing_module if job.script.kind is ScriptKind.MODULE else _missing_command
    problem = check(job, environ)
    if problem is None:
        return None
    if here or _is_on_shared_files(job):
        raise problem
    return f"{problem.what} on this machine ({problem.why}); the nodes must have it"


def _is_on_shared_files(job: Job) -> bool:
    """Whether the nodes see the same files: the path is on a file system that is usually shared."""
    if job.script.kind is ScriptKind.MODULE:
        return is_shared(job.python) and is_shared(job.cwd)
    return "/" in job.script.target and is_shared(str(Path(job.cwd) / job.script.target))


def _missing_command(job: Job, environ: Mapping[str, str]) -> ConfigError | None:
    name = job.script.target
    has_folder = "/" in name
    path = Path(job.cwd) / name
    found = str(path) if has_folder and os.access(path, os.X_OK) and path.is_file() else None
    found = found if has_folder else find_program(name, environ)
    if found is not None:
        return _missing_interpreter(name, Path(found), environ)
    if not path.is_file():
        why = f"{path} does not exist" if has_folder else "no such program on PATH"
        return ConfigError(f"no command {name}", origin=COMMAND_LINE, why=why, hint=_command_hint(name, path, environ))
    if not has_folder:
        hint = (
            f"-- {format_command((f'./{name}',))}"
            if path.suffix != ".py"
            else f"echelon run {format_command((name,))}, without --"
        )
        return ConfigError(f"no command {name}", origin=COMMAND_LINE, why="it is a file, but not on PATH", hint=hint)
    return ConfigError(
        f"cannot execute {name}",
        origin=COMMAND_LINE,
        why="Permission denied",
        hint=format_command(("chmod", "u+x", name)),
    )


def _command_hint(name: str, path: Path, environ: Mapping[str, str]) -> str:
    first = name.split()[0] if name.strip() else name
    if first != name and find_program(first, environ) is not None:
        return f"without quotes: -- {name}"
    return suggest_closest(path.name, [entry.name for entry in _list_folder(path.parent)]) or "check its name and path"


def _missing_interpreter(name: str, path: Path, environ: Mapping[str, str]) -> ConfigError | None:
    """Checks the interpreter in the first line. The kernel would report only "No such file or directory", without the
    name of the script or the interpreter."""
    words = _first_line(path)[2:].split() if _first_line(path).startswith("#!") else []
    if len(words) > 1 and Path(words[0]).name == "env" and not words[1].startswith("-") and "=" not in words[1]:
        words = words[1:]
    if not words or find_program(words[0], environ) is not None:
        return None
    return ConfigError(
        f"cannot execute {name}",
        origin=f"{path}:1",
        why=f"its interpreter {words[0]} does not exist",
        hint="correct the first line, or name the interpreter: -- bash SCRIPT",
    )


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(256).split(b"\n")[0].decode(errors="replace")
    except OSError:
        return ""


def _missing_module(job: Job, environ: Mapping[str, str]) -> ConfigError | None:
    name = job.script.target
    found = _query_python(job, environ)
    if found is None:
        return None
    why, names = found
    return ConfigError(
        f"no module {name} to run",
        origin=f"-m {name}",
        why=f"{why} ({job.python} in {job.cwd})",
        hint=suggest_closest(name, names) or "run from the folder that contains it, or --set PYTHONPATH=DIR",
    )


def _query_python(job: Job, environ: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """Returns None also if that Python fails or takes too long: the run will show its error."""
    import subprocess  # a slow import that render does not need

    argv = [job.python, "-c", FIND_MODULE.read_text(encoding="utf-8"), job.script.target]
    try:
        done = subprocess.run(
            argv,
            cwd=job.cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=MODULE_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return (str(answer[0]), list(answer[1])) if answer else None
