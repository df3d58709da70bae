"""From a job to its run directories, with an sbatch of ours first on PATH."""

import os
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from echelon.backends.slurm import control
from echelon.errors import ConfigError, EnvironmentProblem, SchedulerError
from echelon.events import Kind, append_event, read_events
from echelon.job import Job, SchedulerOptions, Script, ScriptKind
from echelon.submission.submit import cancel, resume, start
from running import DEADLINE_SECONDS, wait_for

JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="t.py"),
    cwd="/",
    python=sys.executable,
    scheduler="slurm",
)
ARRAY = replace(JOB, booking=SchedulerOptions(array="1-3%2"))


class Tools:
    """Slurm's, as far as a submission needs them. They leave beside themselves what they were given."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, tool, text):
        (self.folder / tool).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / tool).chmod(0o755)

    def read(self, name):
        return (self.folder / name).read_text()


@pytest.fixture
def tools(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tools = Tools(folder)
    tools.install("sbatch", f'cat "$2" > {folder}/script; env > {folder}/environ; echo 77')
    tools.install("squeue", "echo '77|RUNNING|N/A|None'; echo '77_2|PENDING|N/A|Priority'")
    tools.install("scancel", f'echo "$@" > {folder}/cancelled; cat {tmp_path}/runs/*/cancel > {folder}/mark')
    return tools


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def ended(run):
    append_event(run.events, Kind.FINISHED, 0, outcome="failed", exit_code=1)


# One run


def test_a_run_has_its_script_its_id_and_its_first_event(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    assert run.read_native_id() == "77"
    assert run.job_script.read_text() == tools.read("script")
    assert [event.kind for event in read_events(run.events)] == [Kind.SUBMITTED]
    assert run.read_job() == JOB
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_secrets_are_passed_in_the_environ_only(tools, runs):
    [run] = start(replace(JOB, secret_env=("HF_TOKEN",)), {}, {"HF_TOKEN": "hf_1, 'x'"}, runs)
    assert "HF_TOKEN=hf_1, 'x'" in tools.read("environ").splitlines()
    assert not [path for path in run.path.rglob("*") if path.is_file() and b"hf_1" in path.read_bytes()]


def test_a_run_that_was_refused_leaves_nothing(tools, runs):
    tools.install("sbatch", "echo no >&2; exit 1")
    for job in (JOB, ARRAY):
        with pytest.raises(SchedulerError):
            start(job, {}, {}, runs)
    assert list(runs.iterdir()) == []


def test_a_cancel_leaves_its_mark_before_the_scheduler_is_asked(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    assert cancel(run)
    assert tools.read("cancelled").split() == ["77"]
    assert float(tools.read("mark")) > 0


def test_second_cancel_differs_from_the_first(tools, runs, monkeypatch):
    [run] = start(JOB, {}, {}, runs)
    seen = []
    monkeypatch.setattr(control, "cancel", lambda _, *, force: seen.append(force) or True)
    assert cancel(run)
    assert cancel(run)
    assert seen == [False, True]


@pytest.mark.parametrize("answer", ["Access/permission denied", "Unable to contact slurm controller"])
def test_a_refused_cancel_leaves_no_mark(tools, runs, answer):
    [run] = start(JOB, {}, {}, runs)
    tools.install("scancel", f"echo 'scancel: error: {answer}' >&2; exit 1")
    with pytest.raises(SchedulerError):
        cancel(run)
    assert not run.cancel_mark.exists()


def test_a_refusal_after_an_accepted_cancel_keeps_the_mark(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    assert cancel(run)
    tools.install("scancel", "echo 'scancel: error: Access/permission denied' >&2; exit 1")
    with pytest.raises(SchedulerError):
        cancel(run)
    assert run.cancel_mark.exists()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("exit 0", "-W force 7.pbs"),
        ("echo 'qdel: Server could not connect to MOM 7.pbs' >&2; exit 1", "-W force 7.pbs"),
        ("echo 'qdel: Unauthorized Request 7.pbs' >&2; exit 159", "7.pbs"),
        ("echo 'qdel: cannot connect to server pbs (errno=111)' >&2; exit 1", "7.pbs"),
    ],
)
def test_only_an_unrefused_first_qdel_is_followed_by_force(tools, runs, first, second):
    tools.install("qsub", "echo 7.pbs")
    [run] = start(replace(JOB, scheduler="pbs"), {}, {}, runs)
    tools.install("qdel", first)
    with suppress(SchedulerError):
        cancel(run)
    tools.install("qdel", f'echo "$@" >{tools.folder}/deleted')
    assert cancel(run)
    assert tools.read("deleted").strip() == second


def test_a_run_that_is_resumed_is_no_longer_cancelled(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    cancel(run)
    tools.install("sbatch", "echo 78")
    ended(run)
    resume(run, {})
    assert not run.cancel_mark.exists()
    assert run.read_native_id() == "78"
    assert [attempt.number for attempt in run.attempts()] == [0, 1]


def test_a_run_is_resumed_only_with_its_secrets(tools, runs):
    [run] = start(replace(JOB, secret_env=("HF_TOKEN",)), {}, {"HF_TOKEN": "x"}, runs)
    ended(run)
    with pytest.raises(ConfigError, match="HF_TOKEN is not set"):
        resume(run, {})


def test_unwritable_runs_folder_is_not_changed(tools, runs):
    runs.write_text("not a folder")
    with pytest.raises(EnvironmentProblem):
        start(JOB, {}, {}, runs)
    assert runs.read_text() == "not a folder"


def test_a_folder_in_which_others_can_replace_runs_is_refused(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    ended(run)
    runs.chmod(0o777)
    with pytest.raises(EnvironmentProblem, match="another user can replace the runs in"):
        start(JOB, {}, {}, runs)
    with pytest.raises(EnvironmentProblem, match="another user can replace the runs in"):
        resume(run, {})
    assert list(runs.iterdir()) == [run.path]
    runs.chmod(0o1777)
    assert resume(run, {}) == 1


def test_a_new_folder_for_runs_is_sticky_if_others_can_write(tools, tmp_path):
    before = os.umask(0o002)
    try:
        start(JOB, {}, {}, tmp_path / "shared" / "runs")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "shared" / "runs").stat().st_mode) == 0o1775


# An array


def test_an_array_is_one_submission_and_a_run_for_each_index(tools, runs):
    made = start(ARRAY, {}, {}, runs)
    assert [run.run_id.rpartition("-")[2] for run in made] == ["1", "2", "3"]
    assert len({run.run_id.rpartition("-")[0] for run in made}) == 1
    assert [run.read_native_id() for run in made] == ["77_1", "77_2", "77_3"]
    assert [run.read_job().booking.array for run in made] == ["1", "2", "3"]
    assert {run.job_script.read_text() for run in made} == {tools.read("script")}
    assert "#SBATCH --array=1-3%2" in tools.read("script").splitlines()
    assert all(run.attempts() and run.events.exists() and run.node_side.exists() for run in made)


def test_array_has_one_copy_of_the_node_side(tools, runs):
    assert len({run.node_side.stat().st_ino for run in start(ARRAY, {}, {}, runs)}) == 1


def test_array_run_is_resumed_with_its_index(tools, runs):
    second = start(ARRAY, {}, {}, runs)[1]
    tools.install("sbatch", f'cat "$2" > {tools.folder}/script; echo 99')
    ended(second)
    resume(second, {})
    assert second.read_native_id() == "99_2"
    assert "#SBATCH --array=2" in tools.read("script").splitlines()
    assert str(second.node_side) in tools.read("script")


def test_one_run_of_an_array_is_cancelled(tools, runs):
    assert cancel(start(ARRAY, {}, {}, runs)[1])
    assert tools.read("cancelled").split() == ["77_2"]


# Two at once

RESUME = """
import os, sys, time
from pathlib import Path
from echelon.errors import ConfigError
from echelon.run_dir import RunDir
from echelon.submission.submit import resume

write, folder = RunDir.write, Path(sys.argv[1])

def slow_write(self, path, data, mode=0o600):
    if path.name == "job.sh" and not (folder / "go").exists():
        (folder / "inside").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
    write(self, path, data, mode)

RunDir.write = slow_write
try:
    print("attempt", resume(RunDir(Path(sys.argv[2])), os.environ))
except ConfigError as error:
    print(error.what)
"""


def resuming(folder, run):
    argv = [sys.executable, "-c", RESUME, str(folder), str(run.path)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_of_two_resumes_at_once_exactly_one_submits(tools, runs, tmp_path):
    (run,) = start(JOB, {}, {}, runs)
    ended(run)
    tools.install("sbatch", f"echo once >> {tools.folder}/submitted; echo 77")
    first = resuming(tmp_path, run)
    try:
        wait_for(lambda: (tmp_path / "inside").exists(), "the first to be between claim and submission")
        second, _ = resuming(tmp_path, run).communicate(timeout=DEADLINE_SECONDS)
    finally:
        (tmp_path / "go").touch()
    told, _ = first.communicate(timeout=DEADLINE_SECONDS)
    assert told == "attempt 1\n"
    assert second == f"{run.run_id} is being resumed by another process\n"
    assert tools.read("submitted") == "once\n"
    assert [attempt.number for attempt in run.attempts()] == [0, 1]
    with pytest.raises(ConfigError, match="is still"):
        resume(run, {})
