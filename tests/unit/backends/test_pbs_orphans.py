"""PBS agents that lost their supervisor: they wait, submit a successor, or exit. Plain values and fake tools."""

import os
from datetime import timedelta

import pytest

from echelon import lease
from echelon.backends.pbs import failover
from echelon.backends.pbs.failover import NextStep, RunState, continue_without_supervisor, newest_event, next_step
from echelon.backends.pbs.hosts import submit_successor
from echelon.errors import REQUEUE
from echelon.events import Event, Kind, append_event, read_events
from echelon.job import Job, Policies, Script, ScriptKind
from echelon.run_dir import RunDir

JOB = Job(
    name="x",
    script=Script(kind=ScriptKind.FILE, target="x.py"),
    cwd="/",
    python="python",
    scheduler="pbs",
    policies=Policies(requeues=1, heartbeat=timedelta(0)),
)


@pytest.mark.parametrize(
    ("sight", "step"),
    [
        (RunState(), NextStep.SUBMIT),
        (RunState(quiet=False), NextStep.WAIT),
        (RunState(lease_held=True), NextStep.WAIT),
        (RunState(closed=True), NextStep.LEAVE),
        (RunState(newest=Kind.REQUEUED, exit_code=REQUEUE), NextStep.SUBMIT),
        (RunState(newest=Kind.REQUEUED), NextStep.SUBMIT),
        (RunState(newest=Kind.REQUEUED, exit_code=REQUEUE, lease_held=True), NextStep.WAIT),
        (RunState(newest=Kind.REQUEUED, exit_code=REQUEUE, quiet=False), NextStep.WAIT),
        (RunState(newest=Kind.REQUEUED, exit_code=REQUEUE, closed=True), NextStep.LEAVE),
        (RunState(exit_code=REQUEUE), NextStep.WAIT),
        (RunState(newest=Kind.FAULT), NextStep.WAIT),
        (RunState(newest=Kind.PROGRESS), NextStep.WAIT),
        (RunState(newest=Kind.GENERATION), NextStep.LEAVE),
        (RunState(newest=Kind.GENERATION, lease_held=True), NextStep.LEAVE),
        (RunState(newest=Kind.FINISHED, exit_code=0), NextStep.LEAVE),
        (RunState(exit_code=0), NextStep.LEAVE),
        (RunState(exit_code=1), NextStep.LEAVE),
    ],
)
def test_next_step_of_agent_without_supervisor(sight, step):
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
def test_end_event_before_the_watch_counts(kinds, before, newest):
    assert newest_event([Event(kind=kind, time=0.0) for kind in kinds], before) is newest


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of job 1, and tools that write down how they were called."""
    monkeypatch.setattr(failover, "POLL_SECONDS", 0.01)
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
    continue_without_supervisor(JOB, run.attempt(0), environ(run), patience)


def test_recorded_requeue_is_submitted_and_counted_once(run):
    append_event(run.events, Kind.REQUEUED, 0, outcome="requeued", exit_code=REQUEUE)
    run.attempt(0).exit_code.write_text(f"{REQUEUE}\n")
    orphaned(run)
    assert run.read_native_id() == "2.pbs"
    assert len(list(read_events(run.events))) == 1
    assert said(run, "qdel") == ["qdel -W force 1.pbs"]


def test_held_lease_prevents_submission(run):
    held = lease.acquire(run.lease)
    try:
        pid = os.fork()  # a process does not see its own lock
        if pid == 0:
            orphaned(run, 0.2)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    finally:
        os.close(held)
    assert said(run, "qsub", "qdel") == []


def test_force_is_retried_until_the_node_is_marked_down(run, capsys, monkeypatch):
    monkeypatch.setattr(failover, "DELETE_SECONDS", 0.01)
    refusal = "echo 'qdel: Server could not connect to MOM 1.pbs' >&2; exit 222"
    tool(
        run,
        "qdel",
        f'[ "$(wc -l <{run.path.parent}/tries)" -ge 3 ] || {{ echo >>{run.path.parent}/tries; {refusal}; }}',
    )
    (run.path.parent / "tries").touch()
    orphaned(run)
    assert said(run, "qdel") == ["qdel -W force 1.pbs"] * 4
    printed = capsys.readouterr().out
    assert printed.count("could not connect to MOM 1.pbs; trying again every 10 s") == 1
    assert printed.endswith("job 1.pbs was deleted by force\n")


@pytest.mark.parametrize("code", [35, 153])
def test_ended_job_is_not_force_deleted(run, code):
    tool(run, "qdel", f"exit {code}")
    orphaned(run)
    assert said(run, "qdel") == ["qdel -W force 1.pbs"]


def test_a_denied_deletion_is_not_retried_and_names_the_command(run, capsys):
    tool(run, "qdel", 'echo "qdel: Unauthorized Request" >&2; exit 159')
    orphaned(run)
    assert run.read_native_id() == "2.pbs"
    assert [event.kind for event in read_events(run.events)] == [Kind.REQUEUED]
    assert said(run, "qdel") == ["qdel -W force 1.pbs"]
    assert "To end it now: qdel -W force 1.pbs" in capsys.readouterr().out


# A supervisor that comes back


@pytest.mark.parametrize(("named", "submitted"), [("1.pbs", 1), ("1.pbs.in.full", 1), (" " * 9, 1), ("2.pbs", 0)])
def test_job_with_a_successor_submits_none(run, named, submitted):
    run.native_id.write_text(f"{named}\n")
    submit_successor(run, environ(run))
    assert len(said(run, "qsub")) == submitted
    assert run.read_native_id() == "2.pbs"


def test_cancel_reaches_successor_of_another_agent(run):
    run.native_id.write_text("2.pbs\n")
    run.cancel_mark.touch()
    submit_successor(run, environ(run))
    assert said(run, "qsub", "qdel") == ["qdel 2.pbs"]
