"""Requeues of a Slurm job: commands, and excluded nodes. Fake tools are on PATH."""

import os
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from echelon.backends.hosts import Unreachable
from echelon.backends.slurm.requeue import excluded_hosts, requeue_job
from echelon.errors import SchedulerError
from echelon.events import Event, Kind, append_event, collect_lost_hosts, read_events
from echelon.job import Job, Policies, SchedulerOptions, Script, ScriptKind
from echelon.run_dir import RunDir

EXCLUDES = "ExcNodeList=n[8-9]"


def job(exclude="n9"):
    return Job(
        name="x",
        script=Script(kind=ScriptKind.FILE, target="x.py"),
        cwd="/",
        python="python",
        scheduler="slurm",
        policies=Policies(heartbeat=timedelta(0)),
        booking=SchedulerOptions(exclude=exclude),
    )


@pytest.mark.parametrize(
    ("asked", "shown", "lost", "left_out"),
    [
        (None, "(null)", ["n2"], ["n2"]),
        (None, "", ["n2", "n3", "n2"], ["n2", "n3"]),
        ("n9", "(null)", ["n2"], ["n9", "n2"]),
        ("n[7-8],n9", "n[7-9]", ["n2"], ["n7", "n8", "n9", "n2"]),
        ("n9", "n[3,9]", ["n2"], ["n9", "n3", "n2"]),
        ("/home/ada/bad-nodes", "n[4-5]", ["n2"], ["n4", "n5", "n2"]),
        ("n9", "n[9", ["n2"], ["n9", "n[9", "n2"]),
    ],
)
def test_excluded_nodes_stay_excluded(asked, shown, lost, left_out):
    assert excluded_hosts(asked, shown, lost) == left_out


def test_lost_node_is_excluded_until_the_run_ends():
    def requeued(*lost):
        return Event(kind=Kind.REQUEUED, time=0.0, fields={"lost_hosts": list(lost)} if lost else {})

    submitted = Event(kind=Kind.SUBMITTED, time=0.0)
    assert collect_lost_hosts([submitted, requeued("n2"), requeued(), requeued("n3", "n2")]) == ("n2", "n3")
    assert collect_lost_hosts([submitted, requeued("n2"), submitted, requeued("n4")]) == ("n4",)
    assert collect_lost_hosts([]) == ()


@pytest.fixture
def run(tmp_path):
    """A run of job 7, and tools that write down how they were called."""
    before = signal.getsignal(signal.SIGTERM)
    run = RunDir(tmp_path / "run")
    run.create()
    tool(run, "scontrol", f'[ "$1" != show ] || echo "JobId=7 JobState=RUNNING Restarts=0 {EXCLUDES}"')
    tool(run, "sbatch", "echo 8")
    tool(run, "scancel", "")
    yield run
    signal.signal(signal.SIGTERM, before)


def tool(run, name, text):
    path = run.path.parent / name
    path.write_text(f'#!/bin/sh\necho {name} "$@" >>{run.path.parent}/said\n{text}\n')
    path.chmod(0o755)


def refuse(run, word="requeue"):
    """Slurm answers everything but this."""
    shown = f'echo "JobId=7 Restarts=0 {EXCLUDES}"'
    tool(run, "scontrol", f'[ "$1" != {word} ] || {{ echo "Requested operation is disabled" >&2; exit 1; }}\n{shown}')


def said(run):
    """After the first question."""
    return [line for line in (run.path.parent / "said").read_text().splitlines() if " show " not in line]


def environ(run, **more):
    return {"PATH": f"{run.path.parent}:{os.defpath}", "SLURM_JOB_ID": "7", **more}


def test_earlier_lost_and_user_excluded_nodes_stay_excluded(run):
    append_event(run.events, Kind.SUBMITTED, 0)
    append_event(run.events, Kind.REQUEUED, 0, lost_hosts=["n2"])
    append_event(run.events, Kind.REQUEUED, 1, lost_hosts=["n3"])
    requeue_job(job(), run, environ(run), ("n3",))
    assert said(run) == ["scontrol requeue 7", "scontrol update JobId=7 ExcNodeList=n9,n8,n2,n3"]


def test_requeue_without_losses_changes_nothing(run):
    requeue_job(job(), run, environ(run), ())
    assert said(run) == ["scontrol requeue 7"]


def test_job_requeued_by_slurm_is_not_requeued_again(run):
    tool(run, "scontrol", 'echo "JobId=7 Restarts=1"')
    requeue_job(job(), run, environ(run), ("n2",))
    assert said(run) == []


def test_successor_excludes_the_same_nodes(run):
    refuse(run)
    requeue_job(job(), run, environ(run), ("n2",))
    script = str(run.job_script)
    assert said(run)[1:] == [f"sbatch --parsable --dependency=afterany:7 --exclude=n9,n8,n2 {script}"]
    assert run.read_native_id() == "8"


def test_successor_without_losses_has_no_exclude_option(run):
    refuse(run)
    requeue_job(job(), run, environ(run, SLURM_ARRAY_TASK_ID="3"), ())
    assert said(run)[1:] == [f"sbatch --parsable --dependency=afterany:7 --array=3 {run.job_script}"]
    assert run.read_native_id() == "8_3"


@pytest.mark.parametrize(("printed", "words"), [("8", "8"), ("8;big", "-M big 8")])
def test_cancel_during_requeue_reaches_the_successor(run, printed, words):
    refuse(run)
    tool(run, "sbatch", f"echo '{printed}'; : >{run.cancel_mark}")
    requeue_job(job(), run, environ(run), ())
    assert said(run)[-1] == f"scancel {words}"


def test_failed_cancel_of_successor_is_printed(run, capsys):
    refuse(run)
    run.cancel_mark.touch()
    tool(run, "scancel", "echo 'Invalid user id' >&2; exit 1")
    requeue_job(job(), run, environ(run), ())
    assert "its successor 8 was not: Invalid user id" in capsys.readouterr().out


def test_refused_exclusion_does_not_stop_the_requeue(run, capsys):
    refuse(run, "update")
    requeue_job(job(), run, environ(run), ("n2",))
    assert "Slurm did not exclude n9, n8, n2: Requested operation is disabled" in capsys.readouterr().out


def test_refused_requeue_and_successor_are_both_reported(run):
    refuse(run)
    tool(run, "sbatch", 'echo "Access/permission denied" >&2; exit 1')
    with pytest.raises(SchedulerError) as caught:
        requeue_job(job(), run, environ(run), ())
    assert "Requested operation is disabled\nAccess/permission denied" in caught.value.why


@pytest.mark.parametrize("text", ["echo 'Unable to contact slurm controller' >&2; exit 1", "kill -KILL $$"])
def test_unanswered_requeue_is_retried(run, text):
    tool(run, "scontrol", text)
    with pytest.raises(Unreachable):
        requeue_job(job(), run, environ(run), ())


def test_agents_exclude_and_record_the_first_node(run):
    """In a process of its own: it takes the signals as an agent does."""
    run.attempt(0).path.mkdir()
    run.write_description(job(), {})
    shown = '[ "$2" = node ] && echo "NodeName=n1 State=DOWN*+DRAIN" || echo "JobId=7 Restarts=0 ExcNodeList=n9"'
    tool(run, "scontrol", shown)
    code = (
        "import os, sys; from pathlib import Path; from echelon.run_dir import RunDir\n"
        "from echelon.backends import backend; run = RunDir(Path(sys.argv[1])); job = run.read_job()\n"
        "backend(job.scheduler).requeue_without_supervisor(job, run.attempt(0), os.environ)"
    )
    env = {**environ(run, SLURM_JOB_NODELIST="n[1-2]"), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(run.path)], env=env, check=True, timeout=60)
    assert said(run) == ["scontrol requeue 7", "scontrol update JobId=7 ExcNodeList=n9,n1"]
    [event] = read_events(run.events)
    assert event.fields["lost_hosts"] == ["n1"]
    assert event.fields["counts"] is False
