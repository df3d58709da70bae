"""Runs the doctor job and reads what its nodes printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.backends import backend
from echelon.cli._output import say
from echelon.doctor.judge import Heard, judge_heard, parse_lines
from echelon.doctor.model import Finding, Node, Plan, Severity
from echelon.errors import EchelonError
from echelon.events import Kind, read_events
from echelon.job import Job
from echelon.observe.follow import Follower, follow
from echelon.observe.status import RunStatus
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.states import JobState
from echelon.submission.submit import cancel, start
from echelon.text import plural

PROGRESS = re.compile(rb'\[ *\d+\] \{"doctor": "(?P<kind>progress|end)"(, "part": "(?P<part>[a-z_ ]+)")?\}')
MOST_BYTES = 16 << 20


@record
class JobResult:
    run_dir: RunDir
    nodes: Sequence[Node]
    findings: Sequence[Finding]
    completed: bool
    """All nodes finished: the run directory has nothing that the report lacks."""


class Progress:
    """Prints a line when more nodes have finished a part: at most four lines per part."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._counts: dict[str, int] = {}

    def write(self, data: bytes) -> None:
        for line in data.splitlines():
            found = PROGRESS.match(line)
            if found is not None:
                self._count((found["part"] or b"all_reduce").decode())

    def _count(self, part: str) -> None:
        count = self._counts[part] = self._counts.get(part, 0) + 1
        if count * 4 // self._nodes != (count - 1) * 4 // self._nodes:
            say(f"checked {part}: {count} of {plural(self._nodes, 'node')}")


def run_doctor_job(
    job: Job, plan: Plan, origins: Mapping[str, str], secrets: Mapping[str, str], runs: Path
) -> JobResult:
    """Submits the job, follows it to its end, and judges its results. Raises EchelonError if it is refused."""
    [run_dir] = start(job, origins, secrets, runs, say)
    summary = backend(job.scheduler).submission_summary(job, run_dir.read_native_id())
    say(f"{run_dir.run_id}: {', '.join(filter(None, (summary, plural(job.resources.nodes, 'node'))))}")
    progress = Progress(job.resources.nodes)
    follower = Follower(run_dir, attempt=0, write=progress.write, say=say)
    try:
        for _ in follow([follower], backend(job.scheduler)):
            pass
    except KeyboardInterrupt:
        _cancel(run_dir)
        raise
    return read_result(run_dir, plan, follower.end)


def _cancel(run_dir: RunDir) -> None:
    say(f"cancelling {run_dir.run_id}")
    try:
        cancel(run_dir)
    except EchelonError as error:
        say(f"cannot cancel {run_dir.run_id}: {error.what}; echelon cancel {run_dir.run_id} tries again")


def read_result(run_dir: RunDir, plan: Plan, end: RunStatus | None) -> JobResult:
    events = read_events(run_dir.events)
    hosts = next((list(one.fields.get("hosts", ())) for one in events if one.kind is Kind.GENERATION), [])
    heard = {host: parse_lines(_read(run_dir, rank), hosts) for rank, host in enumerate(hosts)}
    absent = sorted({name for one in events for name in one.fields.get("lost_hosts", ())} - set(hosts))
    findings = [
        *judge_heard(heard, hosts, plan),
        *(absent_finding(name, run_dir) for name in absent),
        *job_findings(end, heard),
    ]
    nodes = [Node(name=name, results=one.results) for name, one in heard.items()]
    completed = bool(heard) and not absent and all(one.ended for one in heard.values())
    return JobResult(run_dir=run_dir, nodes=nodes, findings=findings, completed=completed)


def _read(run_dir: RunDir, rank: int) -> str:
    try:
        with run_dir.attempt(0).rank_log(rank).open("rb") as file:
            return file.read(MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""


def absent_finding(name: str, run_dir: RunDir) -> Finding:
    why = "its agent did not connect in time: no network to the first node, no Python, or the node is down"
    return Finding(
        severity=Severity.ERROR,
        check="node",
        node=name,
        what="did not start",
        why=why,
        fix=f"exclude the node; {run_dir.job_output} may have the reason",
        excludes=(name,),
    )


def job_findings(end: RunStatus | None, heard: Mapping[str, Heard]) -> list[Finding]:
    """One finding if the job itself failed. Findings of nodes that reported explain it better."""
    if end is None or end.state is JobState.SUCCEEDED or (all(one.ended for one in heard.values()) and heard):
        return []
    what = f"the doctor job {end.state.value.lower()}"
    return [
        Finding(severity=Severity.ERROR, check="job", node="", what=what, why=end.reason, fix=end.hint or "echelon why")
    ]
