"""PBS's own commands as the node side uses them: found, asked, and always an end to the waiting."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon import qstat
from echelon.batch_facts import PBS
from echelon.node.hosts import Standing
from echelon.node.hosts.asking import Asked, run

ANSWER_SECONDS = 3.0  # a host counts as lost a heartbeat and this long after its last word
CONFIGURATION = Path("/etc/pbs.conf")
USUAL = "/opt/pbs"
WAITS = ("Q", "H", "W", "T")


def find_tool(name: str, environ: Mapping[str, str]) -> str | None:
    """On PATH, or where PBS is installed: a job's PATH need not have it."""
    folders = environ.get("PATH", "").split(os.pathsep)
    folders += [f"{folder}/bin" for folder in (environ.get("PBS_EXEC"), _configured(), USUAL) if folder]
    candidates = (os.path.join(folder, name) for folder in folders if folder)  # noqa: PTH118
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


def _configured() -> str | None:
    try:
        lines = CONFIGURATION.read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("PBS_EXEC=")), None)


def ask(name: str, arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """What the command printed; raises Unreachable, and CalledProcessError where PBS answered no."""
    tool = find_tool(name, environ)
    if tool is None:
        raise subprocess.CalledProcessError(127, name, "", f"there is no {name} on this host")
    return run([tool, *arguments], environ, PBS)


def parse_standing(text: str, job_id: str) -> Standing:
    """Of a job that runs here: one that waits in a queue has been put back there."""
    fields = qstat.find(qstat.parse(text), job_id) or {}
    return Standing(end_at=qstat.end_of(fields), taken_back=fields.get("job_state") in WAITS)


def ask_for_standing(tool: str, job_id: str, environ: Mapping[str, str]) -> Asked:
    """`qstat -f`, whose text is what every version prints alike."""
    return Asked([tool, "-f", job_id], environ, ANSWER_SECONDS, lambda text: parse_standing(text, job_id))
