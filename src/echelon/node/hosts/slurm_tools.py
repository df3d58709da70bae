"""Slurm's own commands as the node side uses them: one question, one answer, and always an end to the waiting."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from echelon.node.hosts import Standing, Unreachable

ANSWER_SECONDS = 3.0
COMMAND_SECONDS = 20.0
UNREACHABLE = re.compile(r"unable to contact|timed out|connect failure|connection refused|no route|unreachable", re.I)

_FIELD = re.compile(r"(?:^|\s)(\w+)=(\S*)")


def fields_of(line: str) -> dict[str, str]:
    """`scontrol show -o`: the first of each name, since what a user wrote (names, comments) may look like anything."""
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        fields.setdefault(name, value)
    return fields


def parse_standing(line: str, restart_count: int) -> Standing:
    fields = fields_of(line)
    restarts = fields.get("Restarts", "")
    return Standing(
        end_at=_moment(fields.get("EndTime", "")),
        taken_back=restarts.isdecimal() and int(restarts) > restart_count,
    )


def _moment(text: str) -> float | None:
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None  # Unknown, N/A: no limit


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """Messages and dates that can be parsed, whatever the user's language."""
    return {**environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def ask(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """What the command printed; raises Unreachable, and CalledProcessError where Slurm answered no."""
    try:
        return subprocess.run(
            argv, env=plain(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=COMMAND_SECONDS, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(str(error)) from error
    except subprocess.CalledProcessError as error:
        if UNREACHABLE.search(error.stderr):
            raise Unreachable(error.stderr.strip()) from error
        raise


class JobQuestion:
    """`scontrol show job`, asked without waiting for the answer."""

    def __init__(self, job_id: str, restart_count: int, environ: Mapping[str, str]) -> None:
        self._restart_count = restart_count
        self._deadline = time.monotonic() + ANSWER_SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the answer; a pipe could fill up
        try:
            self._process = subprocess.Popen(
                ["scontrol", "show", "job", job_id, "-o"],
                env=plain(environ),
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return  # no scontrol here: nobody will answer

    def answer(self) -> Standing | None:
        process = self._process
        if process is None:
            raise Unreachable("scontrol cannot be run")
        code = process.poll()
        if code is None and time.monotonic() < self._deadline:
            return None
        process.kill()
        process.wait()
        self._said.seek(0)
        with self._said as said:
            text = said.read().decode(errors="replace")
        if code != 0:
            raise Unreachable("scontrol did not answer")
        return parse_standing(text, self._restart_count)
