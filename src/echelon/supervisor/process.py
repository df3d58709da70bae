"""The supervisor process: takes the run's lease and runs its attempts one after another."""

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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon import errors, lease
from echelon.backends import EarlyExit, backend, job_id_variables
from echelon.backends.hosts import Hosts, SchedulerView, Unreachable, attempt_hosts
from echelon.diagnosis.history import history_of
from echelon.errors import EchelonError, SchedulerError
from echelon.events import count_requeues, read_events, since_submitted
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.supervisor.connections import Agents
from echelon.supervisor.journal import Journal
from echelon.supervisor.loop import Supervisor
from echelon.supervisor.state import Ending, Outcome, Rules
from echelon.system import network, processes
from echelon.system.project import check_snapshot
from echelon.system.signals import SUPERVISOR_SIGNALS, open_signal_fd

if TYPE_CHECKING:
    from echelon.doctor.model import Plan

TERM_WAIT_SECONDS = 1.0
CANCELLED_BY = "cancelled by "
LEASE_WAIT_SECONDS = 120.0  # longer than a cut-off supervisor lives, or a file server keeps a dead client's lock


def main(run_path: Path) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wake = open_signal_fd(*SUPERVISOR_SIGNALS)  # keeps a signal that arrives between two attempts
    run_dir = RunDir(run_path)
    try:
        held = lease.acquire(run_dir.lease, _lease_wait_seconds(os.environ))
    except lease.LeaseHeld as holder:
        print(f"another supervisor of this run is running ({holder}); exiting", file=sys.stderr)
        return errors.LEASE_HELD
    leave = reason_to_exit(run_dir, os.environ)
    if leave is not None:
        print(leave.reason, file=sys.stderr)
        return leave.exit_code
    processes.set_subreaper()
    requeues_used = count_requeues(read_events(run_dir.events))
    while True:
        attempt = run_dir.current_attempt()
        outcome, hosts = _run_attempt(run_dir, attempt, requeues_used, wake)
        if hosts is None:
            return outcome.exit_code
        if not hosts.requeues_in_process:
            os.close(held)  # the next attempt may start before this process exits
            return _requeue(hosts, outcome, run_dir, attempt)
        if not _has_time_for_attempt(hosts, run_dir.read_job()):
            reason = f"{outcome.reason}; the allocation ends too soon for another attempt"
            hint = "run echelon resume {run} in a new allocation"
            over = Outcome(ending=Ending.FAILED, exit_code=outcome.exit_code, reason=reason, hint=hint)
            Journal(run_dir, attempt).finish(over)
            return over.exit_code
        requeues_used += outcome.uses_requeue


def _lease_wait_seconds(environ: Mapping[str, str]) -> float:
    """Seconds to wait for the lease. A requeued job may start before its previous supervisor detects the requeue."""
    return LEASE_WAIT_SECONDS if any(name in environ for name in job_id_variables()) else 0.0


def reason_to_exit(run_dir: RunDir, environ: Mapping[str, str]) -> EarlyExit | None:
    try:
        return backend(run_dir.read_job().scheduler).reason_to_exit(run_dir, environ)
    except EchelonError as error:
        print(error, file=sys.stderr, flush=True)  # the attempt reports it too
        return None


def _run_attempt(run_dir: RunDir, attempt: int, requeues_used: int, wake: int) -> tuple[Outcome, Hosts | None]:
    """Runs one attempt, records its outcome and ends its processes. Also returns the hosts if a requeue follows."""
    run_dir.attempt(attempt).path.mkdir(mode=0o700, exist_ok=True)
    journal = Journal(run_dir, attempt)
    hosts = None
    try:
        job = run_dir.read_job()
        check_snapshot(job, run_dir)
        hosts = attempt_hosts(job, run_dir, os.environ)
        outcome = _supervise(job, run_dir, hosts, attempt, requeues_used, wake, journal)
    except EchelonError as error:
        outcome = _failure_from_error(error)
    except Exception:  # noqa: BLE001  the outermost function of the process
        text = traceback.format_exc()
        journal.remark(text)
        reason = f"internal error: {text.strip().splitlines()[-1]}"
        outcome = Outcome(ending=Ending.FAILED, exit_code=errors.NO_VERDICT, reason=reason)
    if outcome.ending is Ending.REQUEUED and hosts is not None and _was_cancelled(run_dir, outcome, hosts, wake):
        reason = f"cancelled; {outcome.reason}"
        outcome = Outcome(ending=Ending.CANCELLED, exit_code=128 + signal.SIGTERM, reason=reason)
    is_certain = True
    if outcome.ending is Ending.CANCELLED and hosts is not None:
        standing = _query_standing(hosts)
        is_certain = standing is not None or run_dir.cancel_mark.exists()
        if standing is not None and standing.is_requeued:
            outcome, hosts = _requeued_by_scheduler(outcome), None
    if outcome.reason.startswith(CANCELLED_BY) and run_dir.cancel_mark.exists():  # the signal is only its means
        outcome = replace(outcome, reason=f"{CANCELLED_BY}echelon cancel or Ctrl-C")
    journal.finish(outcome)
    if outcome.ending is not Ending.REQUEUED and is_certain:  # otherwise the scheduler may start the job again
        run_dir.sealed.unlink(missing_ok=True)
    return outcome, hosts if outcome.ending is Ending.REQUEUED else None


def _requeued_by_scheduler(outcome: Outcome) -> Outcome:
    """The outcome for a job that the scheduler requeued: it sends SIGTERM for that, as for a cancel."""
    return Outcome(
        ending=Ending.REQUEUED,
        exit_code=errors.REQUEUE,
        reason="the scheduler requeued the job",
        uses_requeue=False,
        lost_hosts=outcome.lost_hosts,
    )


def _requeue(hosts: Hosts, outcome: Outcome, run_dir: RunDir, attempt: int) -> int:
    try:
        hosts.requeue(outcome.lost_hosts)
    except SchedulerError as error:
        outcome = _failure_from_error(error)
        Journal(run_dir, attempt).finish(outcome)
        run_dir.sealed.unlink(missing_ok=True)
    return outcome.exit_code


def _failure_from_error(error: EchelonError) -> Outcome:
    reason = ": ".join(filter(None, (error.what, error.why)))
    return Outcome(ending=Ending.FAILED, exit_code=error.exit_code, reason=reason, hint=error.hint or "")


def _was_cancelled(run_dir: RunDir, outcome: Outcome, hosts: Hosts, wake: int) -> bool:
    """Whether a cancel arrived after all ranks had exited.

    A cancel of a whole job sends SIGTERM to its ranks and to the supervisor at once. If that may have ended the ranks,
    this function waits TERM_WAIT_SECONDS for the supervisor's signal.
    """
    if run_dir.cancel_mark.exists():
        return True
    at_once = not outcome.uses_requeue and not hosts.requeues_in_process
    readable, _, _ = select.select([wake], [], [], TERM_WAIT_SECONDS if at_once else 0.0)
    return bool(readable) and signal.SIGTERM in os.read(wake, 4096)


def _has_time_for_attempt(hosts: Hosts, job: Job) -> bool:
    """Whether an attempt that starts now has time before its notice is due."""
    standing = _query_standing(hosts)
    if standing is None or standing.end_at is None:
        return True
    return standing.end_at - time.time() > job.policies.notice.total_seconds()


def _query_standing(hosts: Hosts) -> SchedulerView | None:
    """The scheduler's answer. None if there is no scheduler or if it does not answer."""
    question = hosts.start_query()
    while question is not None:
        try:
            standing = question.result()
        except Unreachable:
            return None
        if standing is not None:
            return standing
        time.sleep(0.02)
    return None


def _supervise(
    job: Job, run_dir: RunDir, hosts: Hosts, attempt: int, requeues_used: int, wake: int, journal: Journal
) -> Outcome:
    listener = _open_listener(hosts.listen_address())
    token = secrets.token_bytes(32)
    agents = Agents(
        job=job,
        hosts=hosts,
        run_path=run_dir.path,
        attempt=attempt,
        token=token,
        listener=listener,
        warn=journal.warn,
    )
    try:
        run_dir.write(run_dir.token, token)
        hosts.probe(wake)
        for remark in hosts.remarks():
            journal.warn(remark)
        return Supervisor(
            job=job,
            run_id=run_dir.run_id,
            attempt=attempt,
            rules=_make_rules(job, requeues_used, hosts),
            agents=agents,
            journal=journal,
            history=history_of(since_submitted(read_events(run_dir.events))),
        ).run(wake)
    finally:
        agents.end_all()
        run_dir.token.unlink(missing_ok=True)


def _make_rules(job: Job, requeues_used: int, hosts: Hosts) -> Rules:
    return Rules(
        nodes=job.resources.nodes,
        procs_per_node=job.resources.procs_per_node,
        min_nodes=job.resources.smallest,
        spare_nodes=len(hosts.all) - job.resources.nodes,
        preflight=_preflight_plan(job) if job.policies.preflight else None,
        lost_host_is_reusable=hosts.can_restart_lost_hosts,
        restarts=job.policies.restarts,
        requeues=job.policies.requeues,
        requeues_used=requeues_used,
        grace=job.policies.grace.total_seconds(),
        join_timeout=job.policies.join_timeout.total_seconds(),
    )


def _preflight_plan(job: Job) -> Plan:
    from echelon.doctor.job import preflight_plan  # only here: few runs have a preflight check

    return preflight_plan(job)


def _open_listener(address: str | None) -> socket.socket | None:
    if address is None:
        return None
    listener = network.bind(address, None)
    listener.listen(4096)
    listener.setblocking(False)
    return listener
