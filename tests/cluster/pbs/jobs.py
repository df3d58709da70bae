"""Jobs and job arrays of the stand-in PBS: their state, and how qstat shows it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import dataclass, field

from pbs.request import Refused, Request

FINISHED, UNKNOWN_JOB = 35, 153
OVER = ("F", "X")
SUBSTATES = {"Q": 10, "H": 20, "B": 42, "R": 42, "S": 43, "E": 51, "X": 91, "F": 92}
RERUN_SUBSTATE = 60
NO_HISTORY = "PBS is not configured to maintain job history"


@dataclass
class Task:
    """A process that PBS started on a host, in a separate session."""

    host: str
    process: subprocess.Popen
    session: int = 0


@dataclass
class Job:
    id: str
    request: Request
    script: str
    environ: dict[str, str]
    state: str = "Q"
    comment: str = ""
    hosts: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    login_shell: Task | None = None
    started: float = 0.0
    ending_since: float | None = None
    exiting_until: float | None = None
    is_rerun: bool = False
    is_forced: bool = False
    back_since: float | None = None
    exit_status: int | None = None
    run_count: int = 0
    index: int | None = None
    """Its index, if it is an element of an array."""
    elements: list[Job] = field(default_factory=list)
    """Its elements, if it is an array: then nothing runs under its own id."""

    @property
    def walltime(self) -> int:
        return seconds(self.request.resources["walltime"])

    @property
    def waits_for(self) -> str | None:
        return self.request.attributes.get("depend", "").removeprefix("afterany:") or None

    @property
    def folder(self) -> str:
        return self.request.options.get("o", "")

    @property
    def array_id(self) -> str:
        return re.sub(r"\[\d+\]", "[]", self.id)

    @property
    def substate(self) -> int:
        return RERUN_SUBSTATE if self.is_rerun and self.state in "RE" else SUBSTATES[self.state]

    def output(self) -> str:
        return f"{self.folder}{self.id}.OU" if self.folder.endswith("/") else self.folder

    def end(self) -> None:
        """An element of an array that has others left is X, anything else F."""
        self.state = "F" if self.index is None else "X"

    def fields(self) -> dict[str, object]:
        request = self.request
        shown: dict[str, object] = {"Job_Name": request.options.get("N", "STDIN"), "Job_Owner": "alice@ctl"}
        if self.started:
            shown["resources_used"] = {"cpupercent": 0, "walltime": "00:00:00"}
        shown |= {"job_state": self.state, "queue": request.options.get("q", "workq"), "server": "ctl"}
        if self.hosts:
            shown["exec_host"] = "+".join(f"{host}/0" for host in self.hosts)
        shown["Hold_Types"] = "s" if self.state == "H" else "n"
        if self.waits_for:
            shown["depend"] = f"afterany:{self.waits_for}@ctl"
        shown["Resource_List"] = dict(request.resources)
        if self.started:
            shown["stime"] = time.ctime(self.started)
        shown["substate"] = self.substate
        shown |= self._array_fields()
        variables = {"PBS_O_HOME": "/home/alice", "PBS_O_WORKDIR": "/", "PBS_O_HOST": "ctl", **request.variables}
        shown["Variable_List"] = variables
        if self.comment:
            shown["comment"] = self.comment
        shown["run_count"] = self.run_count
        if self.exit_status is not None and self.state != "X":
            shown["Exit_status"] = self.exit_status
        return shown

    def _array_fields(self) -> dict[str, object]:
        if self.elements:
            return {"array": True, "array_indices_submitted": self.request.options["J"]}
        return {} if self.index is None else {"array_id": self.array_id, "array_index": self.index}


def seconds(text: str) -> int:
    hours, minutes, rest = map(int, text.split(":"))
    return (hours * 60 + minutes) * 60 + rest


def indices(text: str) -> tuple[list[int], int | None]:
    """`first-last[:step][%limit]`: one range of at least two indices, and how many may run at once."""
    match = re.fullmatch(r"(\d+)-(\d+)(?::([1-9]\d*))?(?:%([1-9]\d*))?", text)
    if match is None or int(match[1]) >= int(match[2]):
        raise Refused(1, "qsub: illegal -J value")
    first, last, step, limit = match.groups()
    return list(range(int(first), int(last) + 1, int(step or 1))), int(limit) if limit else None


def find(jobs: dict[str, Job], name: str) -> Job | None:
    return next((job for job in jobs.values() if name in (job.id, job.id.partition(".")[0])), None)


def qstat(jobs: dict[str, Job], argv: list[str], *, history: bool) -> tuple[int, str, str]:
    """Known jobs are shown although others are not. Without a history -x shows no job, and its exit code is 0."""
    flags = [word for word in argv if word.startswith("-") or word == "json"]
    names = [word for word in argv if word not in flags]
    code, shown, complaints = 0, {}, ""
    for name in names:
        if "-x" in flags and not history:
            complaints += f"qstat: {NO_HISTORY} {name}\n"
            continue
        job = find(jobs, name)
        if job is None or (job.state == "F" and not history):
            code, complaints = UNKNOWN_JOB, f"{complaints}qstat: Unknown Job Id {name}\n"
        elif job.state == "F" and "-x" not in flags:
            code = FINISHED
            complaints += f"qstat: {job.id} Job has finished, use -x or -H to obtain historical job information\n"
        else:
            shown[job.id] = job.fields()
    return code, as_json(shown) if "json" in flags else as_text(shown), complaints


def as_json(jobs: dict[str, dict[str, object]]) -> str:
    head = {"timestamp": int(time.time()), "pbs_version": "23.06.06", "pbs_server": "ctl"}
    return json.dumps({**head, **({"Jobs": jobs} if jobs else {})}, indent=4) + "\n"


def as_text(jobs: dict[str, dict[str, object]]) -> str:
    return "".join(f"Job Id: {name}\n{''.join(_lines(fields))}\n" for name, fields in jobs.items())


def _lines(fields: dict[str, object]) -> list[str]:
    """Long lines are wrapped, and continue after a tab."""
    lines = []
    for name, value in fields.items():
        if name == "Variable_List":
            value = ",".join(f"{n}={v}" for n, v in value.items())
        pairs = {f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {name: value}
        for full, text in pairs.items():
            line = f"    {full} = {text}"
            lines.append("\n\t".join(line[i : i + 78] for i in range(0, len(line), 78)) + "\n")
    return lines
