"""The supervisor process: one attempt after the other of one run, under one lease, until there is an end to tell."""

from __future__ import annotations

import os
import secrets
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from echelon import exit_codes
from echelon.errors import EchelonError, SchedulerError
from echelon.events import read_events
from echelon.job import Job
from echelon.node import kinship, lease, ports, succession
from echelon.node.agents import Agents
from echelon.node.history import requeues_so_far
from echelon.node.hosts import Hosts, Standing, Unreachable, hosts_of
from echelon.node.project import check_code
from echelon.node.record import Record
from echelon.node.situation import Ending, Outcome, Rules
from echelon.node.supervisor import Supervisor
from echelon.node.wake import SUPERVISOR_SIGNALS, wake_on
from echelon.run_dir import RunDir

TERM_FOLLOWS_SECONDS = 1.0
LEASE_PATIENCE_SECONDS = 120.0  # longer than a cut-off supervisor, or the lock of a dead file client, lives on


def main(run_path: Path) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wake = wake_on(*SUPERVISOR_SIGNALS)  # a signal between two attempts waits in it
    run_dir = RunDir(run_path)
    try:
        held = lease.take(run_dir.lease, _patience(os.environ))
    except lease.LeaseHeld as holder:
        print(f"another supervisor of this run is alive ({holder}); this one leaves", file=sys.stderr)
        return exit_codes.LEASE_HELD
    refusal = succession.take_over(run_dir, os.environ)
    if refusal is not None:
        print(f"{refusal}; this one leaves", file=sys.stderr)
        return exit_codes.LEASE_HELD
    kinship.adopt_orphans()
    requeued = requeues_so_far(read_events(run_dir.events))
    while True:
        attempt = run_dir.claimed_attempt()
        outcome, hosts = _one_attempt(run_dir, attempt, requeued, wake)
        if hosts is None:
            return outcome.exit_code
        if not hosts.requeues_here:
            os.close(held)  # the next attempt may come before we are through
            return _requeue(hosts, outcome, run_dir, attempt)
        if not _has_time(hosts, run_dir.read_job()):
            reason = f"{outcome.reason}, and the allocation is about to end"
            hint = "echelon resume {run}, in another one"
            over = Outcome(ending=Ending.FAILED, exit_code=outcome.exit_code, reason=reason, hint=hint)
            Record(run_dir, attempt).finish(over)
            return over.exit_code
        requeued += outcome.counts


def _patience(environ: Mapping[str, str]) -> float:
    """A job that its scheduler has put back may start before the supervisor that it lost has noticed."""
    return LEASE_PATIENCE_SECONDS if "SLURM_JOB_ID" in environ or "PBS_JOBID" in environ else 0.0


def _one_attempt(run_dir: RunDir, attempt: int, requeued: int, wake: int) -> tuple[Outcome, Hosts | None]:
    """How it ended, recorded, with nothing left running; and the hosts, if they are to be asked for the next one."""
    run_dir.attempt(attempt).path.mkdir(mode=0o700, exist_ok=True)
    record = Record(run_dir, attempt)
    hosts = None
    try:
        job = run_dir.read_job()
        check_code(job, run_dir)
        hosts = hosts_of(job, run_dir.path, os.environ)
        outcome = _supervise(job, run_dir, hosts, attempt, requeued, wake, record)
    except EchelonError as error:
        outcome = _failure(error)
    except Exception:  # noqa: BLE001  the outermost function of the process
        text = traceback.format_exc()
        record.remark(text)
        reason = f"internal error: {text.strip().splitlines()[-1]}"
        outcome = Outcome(ending=Ending.FAILED, exit_code=exit_codes.NO_VERDICT, reason=reason)
    if outcome.ending is Ending.REQUEUED and hosts is not None and _was_cancelled(run_dir, outcome, hosts, wake):
        reason = f"cancelled; {outcome.reason}"
        outcome = Outcome(ending=Ending.CANCELLED, exit_code=128 + signal.SIGTERM, reason=reason)
    if outcome.ending is Ending.CANCELLED and hosts is not None and _was_taken_back(hosts):
        reason = "the scheduler put the job back into its queue"
        outcome = Outcome(
            ending=Ending.REQUEUED,
            exit_code=exit_codes.REQUEUE,
            reason=reason,
            counts=False,
            lost_hosts=outcome.lost_hosts,
        )
        hosts = None
    record.finish(outcome)
    if outcome.ending is not Ending.REQUEUED:
        run_dir.sealed.unlink(missing_ok=True)
    return outcome, hosts if outcome.ending is Ending.REQUEUED else None


def _requeue(hosts: Hosts, outcome: Outcome, run_dir: RunDir, attempt: int) -> int:
    try:
        hosts.requeue(outcome.lost_hosts)
    except SchedulerError as error:
        outcome = _failure(error)
        Record(run_dir, attempt).finish(outcome)
        run_dir.sealed.unlink(missing_ok=True)
    return outcome.exit_code


def _failure(error: EchelonError) -> Outcome:
    reason = ": ".join(filter(None, (error.what, error.why)))
    return Outcome(ending=Ending.FAILED, exit_code=error.exit_code, reason=reason, hint=error.hint or "")


def _was_cancelled(run_dir: RunDir, outcome: Outcome, hosts: Hosts, wake: int) -> bool:
    """A cancel that came when all ranks had left. Who ends a whole job sends TERM to its ranks and to us at once."""
    if run_dir.cancel_mark.exists():
        return True
    at_once = not outcome.counts and not hosts.requeues_here
    readable, _, _ = select.select([wake], [], [], TERM_FOLLOWS_SECONDS if at_once else 0.0)
    return bool(readable) and signal.SIGTERM in os.read(wake, 4096)


def _was_taken_back(hosts: Hosts) -> bool:
    """TERM is what a scheduler sends to end a job, and to put it back into the queue."""
    standing = _standing(hosts)
    return standing is not None and standing.taken_back


def _has_time(hosts: Hosts, job: Job) -> bool:
    """Whether an attempt that starts now could do anything before it is told to stop."""
    standing = _standing(hosts)
    if standing is None or standing.end_at is None:
        return True
    return standing.end_at - time.time() > job.policies.notice.total_seconds()


def _standing(hosts: Hosts) -> Standing | None:
    """The scheduler's answer; none where nobody gives one."""
    question = hosts.ask()
    while question is not None:
        try:
            standing = question.answer()
        except Unreachable:
            return None
        if standing is not None:
            return standing
        time.sleep(0.02)
    return None


def _supervise(
    job: Job, run_dir: RunDir, hosts: Hosts, attempt: int, requeued: int, wake: int, record: Record
) -> Outcome:
    listener = _listener(hosts.listen_address())
    token = secrets.token_bytes(32)
    agents = Agents(job=job, hosts=hosts, run_path=run_dir.path, attempt=attempt, token=token, listener=listener)
    try:
        run_dir.write(run_dir.token, token)
        hosts.gather(wake)
        for remark in hosts.remarks():
            record.remark(remark)
        return Supervisor(
            job=job,
            run_id=run_dir.run_id,
            attempt=attempt,
            rules=_rules(job, requeued, hosts),
            agents=agents,
            record=record,
        ).work(wake)
    finally:
        agents.dismiss()
        if listener is not None:
            listener.close()
        run_dir.token.unlink(missing_ok=True)


def _rules(job: Job, requeued: int, hosts: Hosts) -> Rules:
    return Rules(
        nodes=job.resources.nodes,
        procs_per_node=job.resources.procs_per_node,
        smallest=job.resources.smallest,
        spares=len(hosts.all) - job.resources.nodes,
        host_comes_back=hosts.comes_back,
        restarts=job.policies.restarts,
        requeues=job.policies.requeues,
        requeued=requeued,
        grace=job.policies.grace.total_seconds(),
    )


def _listener(address: str | None) -> socket.socket | None:
    if address is None:
        return None
    listener = ports.bind(address, None)
    listener.listen(4096)
    listener.setblocking(False)
    return listener
