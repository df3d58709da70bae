"""The remote shell with which mpirun starts its daemons on the other hosts of a PBS job, as tasks of PBS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.backends.pbs.hosts import find_tool
from echelon.errors import EnvironmentProblem
from echelon.job import Job
from echelon.shell import export_lines, quote_word

FILE_NAME = "remote-shell"
SHELL = "/bin/sh "
INFO_SECONDS = 3.0
DAEMON_VARIABLES = ("PATH", "LD_LIBRARY_PATH")
"""Variables that locate Open MPI's daemon. Tasks of PBS do not inherit PATH."""


def write_remote_shell(job: Job, environ: Mapping[str, str], folder: Path) -> str:
    """Writes the script and returns the command to call it, with the arguments of ssh (HOST COMMAND...).

    Empty if mpirun needs none. The command starts with a shell because a temporary folder may be mounted noexec.
    """
    tool = find_tool("pbs_tmrsh", environ) if job.launcher == "mpirun" and environ.get("PBS_JOBID") else None
    if tool is None:
        return ""
    path = folder / FILE_NAME
    path.write_text(remote_shell_script(tool, environ), errors="surrogateescape")
    return f"{SHELL}{path}"


def check_remote_shell(job: Job, environ: Mapping[str, str], hosts: Sequence[str], command: str) -> None:
    """Raises EnvironmentProblem if mpirun cannot use `command`, or if it would use ssh without the user's choice.

    Daemons that ssh starts are not part of the PBS job. PBS neither limits nor ends them.
    """
    if job.launcher != "mpirun" or not environ.get("PBS_JOBID") or len(hosts) < 2:
        return
    if command:
        _check_path(command.removeprefix(SHELL))
    elif not _user_chose_agent(job, environ) and _lacks_tm(environ):
        raise EnvironmentProblem(
            "mpirun cannot reach the other hosts through PBS",
            why="pbs_tmrsh is not on PATH or in PBS_EXEC/bin, and this Open MPI was built without PBS (tm)",
            hint="load an Open MPI with tm, or omit --launcher mpirun; --set OMPI_MCA_plm_rsh_agent=ssh uses ssh",
        )


def _check_path(path: str) -> None:
    if any(letter.isspace() or letter == ":" for letter in path):
        raise EnvironmentProblem(
            f"mpirun cannot use {path}",
            why="the path has a space or a colon, and mpirun splits it there",
            hint="set TMPDIR to a folder without them",
        )


def _user_chose_agent(job: Job, environ: Mapping[str, str]) -> bool:
    in_options = any(value.startswith("plm") for value in job.launching.options.values())
    return in_options or any(name.startswith("OMPI_MCA_plm") for name in environ)


def _lacks_tm(environ: Mapping[str, str]) -> bool:
    """False if unknown: Open MPI 5 starts its daemons with PRRTE, which ompi_info does not list."""
    mpirun = shutil.which("mpirun", path=environ.get("PATH"))
    try:
        argv = [str(Path(mpirun or "").with_name("ompi_info")), "--parsable"]
        done = subprocess.run(
            argv, env=dict(environ), capture_output=True, text=True, errors="replace", timeout=INFO_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return "mca:plm:" in done.stdout and "mca:plm:tm:" not in done.stdout


def remote_shell_script(tool: str, environ: Mapping[str, str]) -> str:
    """The script of the remote shell. pbs_tmrsh runs a command without a shell, but mpirun expects one. Pure."""
    lines = (*export_lines({name: environ[name] for name in DAEMON_VARIABLES if name in environ}), 'eval "$1"')
    inner = quote_word("\n".join(lines))
    return f'#!/bin/sh\nhost=$1\nshift\nexec {quote_word(tool)} "$host" /bin/sh -c {inner} sh "$*"\n'
