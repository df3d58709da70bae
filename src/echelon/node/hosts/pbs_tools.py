"""PBS's own commands as the node side uses them: found, asked, and always an end to the waiting."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon import qstat
from echelon.node.hosts import Standing, Unreachable

ANSWER_SECONDS = 5.0
COMMAND_SECONDS = 60.0
CONFIGURATION = Path("/etc/pbs.conf")
USUAL = "/opt/pbs"
OUT_OF_REACH = ("cannot connect to server", "Connection refused", "timed out", "Communication failure", "End of File")
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
    try:
        return subprocess.run(
            [tool, *arguments], env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=COMMAND_SECONDS, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(str(error)) from error
    except subprocess.CalledProcessError as error:
        if any(word in error.stderr for word in OUT_OF_REACH):
            raise Unreachable(error.stderr.strip()) from error
        raise


def parse_standing(text: str, job_id: str) -> Standing:
    """Of a job that runs here: one that waits in a queue has been put back there."""
    fields = qstat.find(qstat.parse(text), job_id) or {}
    return Standing(end_at=qstat.end_of(fields), taken_back=fields.get("job_state") in WAITS)


class JobQuestion:
    """`qstat -f`, asked without waiting for the answer. Its text is what every version prints alike."""

    def __init__(self, tool: str, job_id: str, environ: Mapping[str, str]) -> None:
        self._job_id = job_id
        self._deadline = time.monotonic() + ANSWER_SECONDS
        self._process = subprocess.Popen(
            [tool, "-f", job_id], env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)
        self._heard = b""

    def answer(self) -> Standing | None:
        code = self._process.poll()
        self._listen()  # all along: what it prints may be longer than a pipe
        if code is None and time.monotonic() < self._deadline:
            return None
        self._process.kill()
        self._process.communicate()
        if code != 0:
            raise Unreachable("qstat did not answer")
        return parse_standing(self._heard.decode(errors="replace"), self._job_id)

    def _listen(self) -> None:
        pipe = self._process.stdout
        while pipe is not None and (chunk := pipe.read()):
            self._heard += chunk
