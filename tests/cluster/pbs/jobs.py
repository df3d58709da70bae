"""Jobs of the stand-in PBS: what is known of one, and how qstat shows it."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field

from pbs.request import Request

FINISHED, UNKNOWN_JOB = 35, 153


@dataclass
class Task:
    """A process that PBS started on a host, in a session of its own."""

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
    started: float = 0.0
    ending_since: float | None = None
    lost_since: float | None = None
    is_forced: bool = False
    back_since: float | None = None
    exit_status: int | None = None
    run_count: int = 0

    @property
    def walltime(self) -> int:
        return seconds(self.request.resources["walltime"])

    @property
    def waits_for(self) -> str | None:
        return self.request.attributes.get("depend", "").removeprefix("afterany:") or None

    @property
    def folder(self) -> str:
        return self.request.options.get("o", "")

    def output(self) -> str:
        return f"{self.folder}{self.id}.OU" if self.folder.endswith("/") else self.folder

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
        variables = {"PBS_O_HOME": "/home/alice", "PBS_O_WORKDIR": "/", "PBS_O_HOST": "ctl", **request.variables}
        shown["Variable_List"] = variables
        if self.comment:
            shown["comment"] = self.comment
        shown["run_count"] = self.run_count
        if self.exit_status is not None:
            shown["Exit_status"] = self.exit_status
        return shown


def seconds(text: str) -> int:
    hours, minutes, rest = map(int, text.split(":"))
    return (hours * 60 + minutes) * 60 + rest


def qstat(jobs: dict[str, Job], argv: list[str]) -> tuple[int, str, str]:
    """Without -x a job that is over is not told; an unknown one is complained of, and the rest told all the same."""
    flags = [word for word in argv if word.startswith("-") or word == "json"]
    code, shown, complaints = 0, {}, ""
    for number in (word for word in argv if word not in flags):
        job = next((job for job in jobs.values() if number in (job.id, job.id.partition(".")[0])), None)
        if job is None:
            code, complaints = UNKNOWN_JOB, f"{complaints}qstat: Unknown Job Id {number}\n"
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
    """Long ones are broken, and go on behind a tab."""
    lines = []
    for name, value in fields.items():
        if name == "Variable_List":
            value = ",".join(f"{n}={v}" for n, v in value.items())
        pairs = {f"{name}.{inner}": v for inner, v in value.items()} if isinstance(value, dict) else {name: value}
        for full, text in pairs.items():
            line = f"    {full} = {text}"
            lines.append("\n\t".join(line[i : i + 78] for i in range(0, len(line), 78)) + "\n")
    return lines
