"""Agents whose supervisor is lost: whether they wait, submit what follows, or leave. Plain values, then tools on PATH."""

import os
from datetime import timedelta

import pytest

from echelon.events import Event, Kind, append_event, read_events
from echelon.exit_codes import REQUEUE
from echelon.job import Job, Policies, Script, ScriptKind
from echelon.node import lease
from echelon.node.hosts import pbs_orphans
from echelon.node.hosts.pbs import submit_successor
from echelon.node.hosts.pbs_orphans import Sight, Step, follow_up, newest_of, next_step
from echelon.run_dir import RunDir

JOB = Job(
    name="x", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/", python="python", scheduler="pbs",
    policies=Policies(requeues=1, heartbeat=timedelta(0)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("sight", "step"),
    [
        (Sight(), Step.SUBMIT),
        (Sight(quiet=False), Step.WAIT),
        (Sight(lease_held=True), Step.WAIT),
        (Sight(closed=True), Step.LEAVE),
        (Sight(newest=Kind.REQUEUED, exit_code=REQUEUE), Step.SUBMIT),
        (Sight(newest=Kind.REQUEUED), Step.SUBMIT),
        (Sight(newest=Kind.REQUEUED, exit_code=REQUEUE, lease_held=True), Step.WAIT),
        (Sight(newest=Kind.REQUEUED, exit_code=REQUEUE, quiet=False), Step.WAIT),
        (Sight(newest=Kind.REQUEUED, exit_code=REQUEUE, closed=True), Step.LEAVE),
        (Sight(exit_code=REQUEUE), Step.WAIT),
        (Sight(newest=Kind.FAULT), Step.WAIT),
        (Sight(newest=Kind.PROGRESS), Step.WAIT),
        (Sight(newest=Kind.GENERATION), Step.LEAVE),
        (Sight(newest=Kind.GENERATION, lease_held=True), Step.LEAVE),
        (Sight(newest=Kind.FINISHED, exit_code=0), Step.LEAVE),
        (Sight(exit_code=0), Step.LEAVE),
        (Sight(exit_code=1), Step.LEAVE),
    ],
)
def test_what_an_orphan_does_next(sight, step):
    assert next_step(sight) is step


@pytest.mark.parametrize(
    ("kinds", "before", "newest"),
    [
        ([], 0, None),
        ([Kind.GENERATION], 1, None),
        ([Kind.GENERATION, Kind.PROGRESS], 1, Kind.PROGRESS),
        ([Kind.GENERATION, Kind.REQUEUED], 1, Kind.REQUEUED),
        ([Kind.GENERATION, Kind.REQUEUED], 2, Kind.REQUEUED),
        ([Kind.GENERATION, Kind.FINISHED], 2, Kind.FINISHED),
    ],
)
def test_an_end_that_was_told_while_we_ended_our_ranks_counts_too(kinds, before, newest):
    assert newest_of([Event(kind=kind, time=0.0) for kind in kinds], before) is newest


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of job 1, and tools that write down how they were called."""
    monkeypatch.setattr(pbs_orphans, "LOOK_SECONDS", 0.01)
    run = RunDir(tmp_path / "run")
    run.create()
    run.attempt(0).path.mkdir()
    run.native_id.write_text("1.pbs\n")
    tool(run, "qstat", "printf 'Job Id: 1.pbs\\n    job_state = R\\n'")
    tool(run, "qsub", "echo 2.pbs")
    tool(run, "qdel", "")
    return run


def tool(run, name, text):
    path = run.path.parent / name
    path.write_text(f'#!/bin/sh\necho {name} "$@" >>{run.path.parent}/said\n{text}\n')
    path.chmod(0o755)


def said(run, *names):
    path = run.path.parent / "said"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.split()[0] in names]


def environ(run):
    return {"PATH": f"{run.path.parent}:{os.defpath}", "PBS_JOBID": "1.pbs"}


def orphaned(run, patience=30.0):
    follow_up(JOB, run, run.attempt(0), environ(run), patience)


def test_what_a_supervisor_that_is_cut_off_has_requeued_is_submitted_and_not_counted_twice(run):
    append_event(run.events, Kind.REQUEUED, 0, outcome="requeued", exit_code=REQUEUE)
    run.attempt(0).exit_code.write_text(f"{REQUEUE}\n")
    orphaned(run)
    assert run.read_native_id() == "2.pbs"
    assert len(list(read_events(run.events))) == 1
    assert said(run, "qdel") == ["qdel 1.pbs"]


def test_while_a_supervisor_holds_the_lease_nothing_is_submitted(run):
    held = lease.take(run.lease)
    try:
        pid = os.fork()  # a process does not see its own lock
        if pid == 0:
            orphaned(run, 0.2)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        os.close(held)
    assert said(run, "qsub", "qdel") == []


def test_a_job_whose_first_host_pbs_does_not_reach_is_deleted_by_force(run, capsys):
    tool(run, "qdel", '[ "$1" = -W ] || { echo "qdel: Server could not connect to MOM 1.pbs" >&2; exit 222; }')
    orphaned(run)
    assert said(run, "qdel") == ["qdel 1.pbs", "qdel -W force 1.pbs"]
    printed = capsys.readouterr().out
    assert "could not connect to MOM" in printed
    assert "job 1.pbs was deleted by force" in printed
    assert "nothing can follow" not in printed


def test_a_job_that_cannot_be_deleted_at_all_is_still_followed_and_the_way_out_is_named(run, capsys):
    tool(run, "qdel", 'echo "qdel: Unauthorized Request" >&2; exit 159')
    orphaned(run)
    assert run.read_native_id() == "2.pbs"
    assert [event.kind for event in read_events(run.events)] == [Kind.REQUEUED]
    printed = capsys.readouterr().out
    assert "type" in printed
    assert "qdel -W force 1.pbs" in printed
    assert "nothing can follow" not in printed


# A supervisor that comes back


@pytest.mark.parametrize(("named", "submitted"), [("1.pbs", 1), ("1.pbs.in.full", 1), (" " * 9, 1), ("2.pbs", 0)])
def test_a_job_that_is_followed_by_another_submits_none(run, named, submitted):
    run.native_id.write_text(f"{named}\n")
    submit_successor(run, environ(run))
    assert len(said(run, "qsub")) == submitted
    assert run.read_native_id() == "2.pbs"


def test_a_cancel_is_for_a_successor_that_somebody_else_submitted_too(run):
    run.native_id.write_text("2.pbs\n")
    run.cancel_mark.touch()
    submit_successor(run, environ(run))
    assert said(run, "qsub", "qdel") == ["qdel 2.pbs"]
