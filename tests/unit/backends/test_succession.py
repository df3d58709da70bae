"""Which PBS job continues a run. Plain values, and one real supervisor."""

import os
import subprocess
import sys

import pytest

from echelon.backends.pbs.failover import take_over_run, takeover_refusal
from echelon.backends.pbs.query import has_successor
from echelon.backends.slurm.requeue import exit_code_before_restart
from echelon.errors import LEASE_HELD
from echelon.events import Event, Kind, append_event, count_requeues, has_finished
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.submission.bundle import node_side
from echelon.supervisor.process import reason_to_exit


def told(*kinds, **fields):
    return [Event(kind=kind, time=0.0, fields=fields) for kind in kinds]


@pytest.mark.parametrize(
    ("job_id", "named", "finished", "leaves"),
    [
        ("5.pbs", "5.pbs", False, False),
        ("5.pbs", "5.pbs.in.full", False, False),
        ("5.pbs", "", False, False),
        ("5.pbs", "4.pbs", False, False),
        ("10.pbs", "9.pbs", False, False),
        ("5.pbs", "6.pbs", False, True),
        ("9.pbs", "10.pbs", False, True),
        ("5.pbs", "5.pbs", True, True),
        ("5.pbs", "4.pbs", True, True),
        ("5.pbs", "12345 on ctl", False, False),
        ("5[2].pbs", "6[2].pbs", False, True),
        ("", "6.pbs", False, False),
    ],
)
def test_job_exits_if_run_ended_or_newer_job_has_it(job_id, named, finished, leaves):
    assert (takeover_refusal(job_id, named, finished=finished) is not None) is leaves


@pytest.mark.parametrize(
    ("job_id", "outcome", "marked", "leaves"),
    [
        ("5.pbs", "cancelled", False, False),
        ("5.pbs", "cancelled", True, True),
        ("5.pbs", "failed", False, True),
        ("6.pbs", "cancelled", False, True),
    ],
)
def test_rerun_that_looked_like_a_cancel_continues(tmp_path, job_id, outcome, marked, leaves):
    run = RunDir(tmp_path / "run")
    run.create()
    script = Script(kind=ScriptKind.FILE, target="x.py")
    run.write_description(Job(name="x", script=script, cwd="/", python="python", scheduler="pbs"), {})
    run.native_id.write_text("5.pbs\n")
    append_event(run.events, Kind.FINISHED, 0, outcome=outcome, exit_code=143)
    if marked:
        run.cancel_mark.touch()
    assert (take_over_run(run, {"PBS_JOBID": job_id}) is not None) is leaves


@pytest.mark.parametrize(
    ("named", "followed"), [("", False), ("5.pbs", False), ("5.pbs.in.full", False), ("6.pbs", True), ("4.pbs", True)]
)
def test_job_has_successor_if_run_has_another_id(named, followed):
    assert has_successor("5.pbs", named) is followed


def test_only_events_since_the_last_resume_count():
    over = [*told(Kind.SUBMITTED, Kind.STARTED, Kind.REQUEUED, Kind.FINISHED)]
    assert has_finished(over)
    assert count_requeues(over) == 1
    again = [*over, *told(Kind.SUBMITTED, Kind.STARTED), *told(Kind.REQUEUED, counts=False)]
    assert not has_finished(again)
    assert count_requeues(again) == 0
    assert not has_finished([])


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create()
    script = Script(kind=ScriptKind.FILE, target="x.py")
    run.write_description(Job(name="x", script=script, cwd="/", python=sys.executable, scheduler="pbs"), {})
    run.write(run.node_side, node_side())
    return run


def test_successor_records_its_id_if_submitter_died(run):
    run.native_id.write_text("4.pbs\n")
    assert take_over_run(run, {"PBS_JOBID": "5.pbs"}) is None
    assert run.read_native_id() == "5.pbs"


def test_id_is_not_overwritten_during_submission(run):
    run.native_id.write_text(" " * 127 + "\n")
    assert take_over_run(run, {"PBS_JOBID": "5.pbs"}) is None
    assert run.native_id.read_text() == " " * 127 + "\n"


@pytest.mark.parametrize(("named", "finished"), [("6.pbs", False), ("5.pbs", True)])
def test_late_supervisor_reports_and_changes_nothing(run, named, finished):
    run.native_id.write_text(f"{named}\n")
    append_event(run.events, Kind.SUBMITTED, 0)
    if finished:
        append_event(run.events, Kind.FINISHED, 0, outcome="succeeded", exit_code=0)
    before = run.events.read_bytes()
    argv = [sys.executable, "-I", str(run.node_side), "supervise", str(run.path)]
    done = subprocess.run(
        argv, env={"PATH": os.defpath, "PBS_JOBID": "5.pbs"}, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == LEASE_HELD, done.stderr
    assert "5.pbs" in done.stderr
    assert "; exiting" in done.stderr
    assert run.events.read_bytes() == before
    assert run.attempts() == []


def test_unreadable_run_is_reported_by_the_attempt(run, capsys):
    run.description.write_text("{")
    assert reason_to_exit(run, {"PBS_JOBID": "5.pbs"}) is None
    assert "not a readable run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("restarts", "outcome", "cancelled", "code"),
    [
        ("2", "succeeded", False, 0),
        ("2", "cancelled", True, 143),
        ("2", "cancelled", False, None),  # Slurm's own TERM, when it requeues a job
        ("2", "failed", False, None),  # Slurm requeues for a node that failed
        ("", "succeeded", False, None),  # a new job, of `echelon resume`
    ],
)
def test_requeued_slurm_job_of_an_ended_run_exits(run, restarts, outcome, cancelled, code):
    append_event(run.events, Kind.SUBMITTED, 0)
    append_event(run.events, Kind.STARTED, 1)
    append_event(
        run.events, Kind.FINISHED, 1, outcome=outcome, exit_code={"succeeded": 0, "cancelled": 143}.get(outcome)
    )
    if cancelled:
        run.cancel_mark.touch()
    assert exit_code_before_restart(run, {"SLURM_RESTART_COUNT": restarts}) == code


def test_restarted_supervisor_of_an_ended_run_returns_its_code(run):
    append_event(run.events, Kind.FINISHED, 1, outcome="succeeded", exit_code=0)
    before = run.events.read_bytes()
    argv = [sys.executable, "-I", str(run.node_side), "supervise", str(run.path)]
    environ = {"PATH": os.defpath, "SLURM_JOB_ID": "1001", "SLURM_RESTART_COUNT": "2"}
    script = Script(kind=ScriptKind.FILE, target="x.py")
    run.write_description(Job(name="x", script=script, cwd="/", python=sys.executable, scheduler="slurm"), {})
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, run.events.read_bytes()) == (0, before), done.stderr
    assert f"to run it again: echelon resume {run.run_id}" in done.stderr
