"""Whether a host can be used, by what it says of itself; all that is wrong with all of them, as one error. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from echelon.errors import RemoteError
from echelon.job import Job, ScriptKind
from echelon.node.hosts.ssh_connection import Report
from echelon.node.hosts.ssh_words import Problem

OLDEST_PYTHON = (3, 10)
CLOCK_SECONDS = 5.0


def script_of(job: Job) -> str:
    """The file that a host must have; empty where it is sent, or where there is none to look for."""
    if job.snapshot or job.script.kind is not ScriptKind.FILE:
        return ""
    return str(PurePosixPath(job.cwd) / job.script.target)


def problem_of_host(host: str, job: Job, report: Report) -> Problem | None:
    if report.version < OLDEST_PYTHON and not job.is_enclosed:
        version = ".".join(map(str, report.version))
        hint = "--python PATH names another one"
        return Problem(host=host, what=f"{report.python} is Python {version}, and 3.10 is needed", hint=hint)
    if job.warm and not report.torch and not job.is_enclosed:
        hint = "--python PATH names another one; --cold starts ranks that need no torch"
        return Problem(host=host, what=f"the Python there has no torch: {report.python}", hint=hint)
    if not report.script:
        hint = "--snapshot sends the working directory along"
        return Problem(host=host, what=f"no script at {script_of(job)}", hint=hint)
    if 0 < report.gpus < job.resources.gpus_per_node:
        asked = job.resources.gpus_per_node
        hint = f"-g {report.gpus}"
        return Problem(host=host, what=f"it has {report.gpus} GPUs, and {asked} were asked for", hint=hint)
    return None


def problem_of_clock(host: str, report: Report, asked_at: float, heard_at: float) -> Problem | None:
    """Which of two failures came first is told by the hosts' clocks."""
    ahead = max(report.time - heard_at, 0.0) + min(report.time - asked_at, 0.0)
    if abs(ahead) < CLOCK_SECONDS:
        return None
    side = "ahead of" if ahead > 0 else "behind"
    return Problem(
        host=host,
        what=f"its clock is {abs(ahead):.0f} s {side} ours",
        why="which of two failures came first is told by the hosts' clocks",
        hint="set its clock, and have it kept right by NTP: sudo timedatectl set-ntp true, on that host",
    )


def remarks_of(hosts: Mapping[str, Report], job: Job) -> list[str]:
    """What is no reason to stop, but may surprise."""
    remarks = []
    bare = [host for host, report in hosts.items() if not report.gpus]
    if job.resources.gpus_per_node and bare and len(bare) < len(hosts):
        remarks.append(f"no GPU on {', '.join(bare)}, though others have some")
    lacking = [host for host, report in hosts.items() if not report.cwd]
    if lacking and not job.snapshot:
        remarks.append(f"no folder {job.cwd} on {', '.join(lacking)}: the ranks there start in the home folder")
    return remarks


def refusal(problems: Sequence[Problem], total: int) -> RemoteError:
    """One error for all of them; advice that is good for all is given once."""
    hosts = ", ".join(problem.host for problem in problems)
    hints = {problem.hint for problem in problems}
    if len(problems) == 1:
        (problem,) = problems
        return RemoteError(f"{hosts}: {problem.what}", host=hosts, why=problem.why or None, hint=problem.hint)
    lines = [line for problem in problems for line in _lines(problem, with_hint=len(hints) > 1)]
    return RemoteError(
        f"{len(problems)} of {total} hosts cannot be used",
        host=hosts,
        why="\n  " + "\n  ".join(lines),
        hint="echelon resume {run} once they can be, or leave them out of --hosts" if len(hints) > 1 else hints.pop(),
    )


def _lines(problem: Problem, *, with_hint: bool) -> list[str]:
    lines = [f"{problem.host}: {problem.what}", *(f"  | {line}" for line in problem.why.splitlines())]
    return [*lines, f"  try  {problem.hint}"] if with_hint else lines


def remark_of(problem: Problem) -> str:
    """Where the run goes on without the host."""
    return ": ".join((f"{problem.host} is left out", problem.what, *problem.why.splitlines()[-1:]))
