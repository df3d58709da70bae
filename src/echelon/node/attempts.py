"""The supervisor process: one attempt after the other of one run, under one lease, until there is an end to tell."""

from __future__ import annotations

import secrets
import signal
import sys
import traceback
from pathlib import Path

from echelon import exit_codes
from echelon.errors import EchelonError
from echelon.events import Kind, read_events
from echelon.job import Job
from echelon.node import kinship, lease, ports
from echelon.node.agents import Agents
from echelon.node.record import Record
from echelon.node.situation import Ending, Outcome
from echelon.node.supervisor import Supervisor, rules_of
from echelon.node.wake import SUPERVISOR_SIGNALS, wake_on
from echelon.run_dir import RunDir


def main(run_path: Path) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wake = wake_on(*SUPERVISOR_SIGNALS)  # a signal between two attempts waits in it
    run_dir = RunDir(run_path)
    try:
        lease.take(run_dir.lease)
    except lease.LeaseHeld as holder:
        print(f"another supervisor of this run is alive ({holder}); this one leaves", file=sys.stderr)
        return exit_codes.LEASE_HELD
    kinship.adopt_orphans()
    requeued = requeues_so_far(run_dir)
    while True:
        outcome = _one_attempt(run_dir, run_dir.claimed_attempt(), requeued, wake)
        if outcome.ending is not Ending.REQUEUED:
            return outcome.exit_code
        requeued += 1


def requeues_so_far(run_dir: RunDir) -> int:
    """Since a person last started or resumed the run."""
    count = 0
    for event in read_events(run_dir.events):
        count = 0 if event.kind is Kind.SUBMITTED else count + (event.kind is Kind.REQUEUED)
    return count


def _one_attempt(run_dir: RunDir, attempt: int, requeued: int, wake: int) -> Outcome:
    """Whatever goes wrong inside, nothing is left running and the end is recorded."""
    run_dir.attempt(attempt).path.mkdir(mode=0o700, exist_ok=True)
    record = Record(run_dir, attempt)
    try:
        outcome = _supervise(run_dir.read_job(), run_dir, attempt, requeued, wake, record)
    except EchelonError as error:
        reason = ": ".join(filter(None, (error.what, error.why)))
        outcome = Outcome(ending=Ending.FAILED, exit_code=error.exit_code, reason=reason, hint=error.hint or "")
    except Exception:  # noqa: BLE001  the outermost function of the process
        text = traceback.format_exc()
        record.remark(text)
        reason = f"internal error: {text.strip().splitlines()[-1]}"
        outcome = Outcome(ending=Ending.FAILED, exit_code=exit_codes.NO_VERDICT, reason=reason)
    record.finish(outcome)
    return outcome


def _supervise(job: Job, run_dir: RunDir, attempt: int, requeued: int, wake: int, record: Record) -> Outcome:
    token = secrets.token_bytes(32)
    run_dir.write(run_dir.token, token)
    listener = ports.bind("127.0.0.1", None)
    listener.listen(4096)
    listener.setblocking(False)
    agents = Agents(job=job, run_path=run_dir.path, attempt=attempt, token=token, listener=listener)
    try:
        return Supervisor(
            job=job, run_id=run_dir.run_id, attempt=attempt, rules=rules_of(job, requeued), agents=agents, record=record
        ).work(wake)
    finally:
        agents.dismiss()
        listener.close()
        run_dir.token.unlink(missing_ok=True)
