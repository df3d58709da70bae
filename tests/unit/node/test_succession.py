"""Which job of PBS goes on with a run, by what the run has written down. Plain values, and one real supervisor."""

import os
import subprocess
import sys

import pytest

from echelon.bundle import node_side
from echelon.events import Event, Kind, append_event
from echelon.exit_codes import LEASE_HELD
from echelon.job import Job, Script, ScriptKind
from echelon.node.history import has_finished, requeues_so_far
from echelon.node.succession import is_followed, refusal_of, take_over
from echelon.run_dir import RunDir


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
def test_a_job_leaves_a_run_that_is_over_or_that_a_newer_job_has(job_id, named, finished, leaves):
    assert (refusal_of(job_id, named, finished=finished) is not None) is leaves


@pytest.mark.parametrize(
    ("named", "followed"), [("", False), ("5.pbs", False), ("5.pbs.in.full", False), ("6.pbs", True), ("4.pbs", True)]
)
def test_a_job_is_followed_where_the_run_names_another_one(named, followed):
    assert is_followed("5.pbs", named) is followed


def test_what_counts_is_what_came_since_a_person_last_started_the_run():
    over = [*told(Kind.SUBMITTED, Kind.STARTED, Kind.REQUEUED, Kind.FINISHED)]
    assert has_finished(over)
    assert requeues_so_far(over) == 1
    again = [*over, *told(Kind.SUBMITTED, Kind.STARTED), *told(Kind.REQUEUED, counts=False)]
    assert not has_finished(again)
    assert requeues_so_far(again) == 0
    assert not has_finished([])


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create()
    script = Script(kind=ScriptKind.FILE, target="x.py")
    run.write_description(Job(name="x", script=script, cwd="/", python=sys.executable, scheduler="pbs"), {})
    run.write(run.node_side, node_side())
    return run


def test_a_successor_whose_submitter_died_becomes_the_runs_job(run):
    run.native_id.write_text("4.pbs\n")
    assert take_over(run, {"PBS_JOBID": "5.pbs"}) is None
    assert run.read_native_id() == "5.pbs"


def test_a_job_that_is_still_being_written_down_is_left_to_who_does_it(run):
    run.native_id.write_text(" " * 127 + "\n")
    assert take_over(run, {"PBS_JOBID": "5.pbs"}) is None
    assert run.native_id.read_text() == " " * 127 + "\n"


@pytest.mark.parametrize(("named", "finished"), [("6.pbs", False), ("5.pbs", True)])
def test_a_supervisor_that_comes_too_late_says_so_and_touches_nothing(run, named, finished):
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
    assert "this one leaves" in done.stderr
    assert run.events.read_bytes() == before
    assert run.attempts() == []


def test_a_run_that_cannot_be_read_is_left_to_the_attempt_to_tell_of(run, capsys):
    run.description.write_text("{")
    assert take_over(run, {"PBS_JOBID": "5.pbs"}) is None
    assert "not a readable run" in capsys.readouterr().err
