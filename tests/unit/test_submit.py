"""From a job to its run directories, with an sbatch of ours first on PATH."""

import stat
import sys
from dataclasses import replace

import pytest

from echelon.errors import ConfigError, EnvironmentProblem, SchedulerError
from echelon.events import Kind, read_events
from echelon.job import Booking, Job, Script, ScriptKind
from echelon.schedulers import slurm
from echelon.submit import cancel, resume, start

JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="t.py"),
    cwd="/",
    python=sys.executable,
    scheduler="slurm",
)
ARRAY = replace(JOB, booking=Booking(array="1-3%2"))


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


# One run


def test_a_run_has_its_script_its_id_and_its_first_event(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    assert run.read_native_id() == "77"
    assert run.job_script.read_text() == tools.read("script")
    assert [event.kind for event in read_events(run.events)] == [Kind.SUBMITTED]
    assert run.read_job() == JOB
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700


def test_secrets_travel_in_the_environment_and_in_no_file(tools, runs):
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


def test_a_second_cancel_is_told_from_the_first(tools, runs, monkeypatch):
    [run] = start(JOB, {}, {}, runs)
    seen = []
    monkeypatch.setattr(slurm, "cancel", lambda _, *, again: seen.append(again) or True)
    assert cancel(run)
    assert cancel(run)
    assert seen == [False, True]


def test_a_run_that_is_resumed_is_no_longer_cancelled(tools, runs):
    [run] = start(JOB, {}, {}, runs)
    cancel(run)
    tools.install("sbatch", "echo 78")
    resume(run, {})
    assert not run.cancel_mark.exists()
    assert run.read_native_id() == "78"
    assert [attempt.number for attempt in run.attempts()] == [0, 1]


def test_a_run_is_resumed_only_with_its_secrets(tools, runs):
    [run] = start(replace(JOB, secret_env=("HF_TOKEN",)), {}, {"HF_TOKEN": "x"}, runs)
    with pytest.raises(ConfigError, match="HF_TOKEN is not set"):
        resume(run, {})


def test_a_place_that_cannot_be_written_is_left_as_it_is(tools, runs):
    runs.write_text("not a folder")
    with pytest.raises(EnvironmentProblem):
        start(JOB, {}, {}, runs)
    assert runs.read_text() == "not a folder"


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


def test_the_node_side_is_there_once_however_long_the_array(tools, runs):
    assert len({run.node_side.stat().st_ino for run in start(ARRAY, {}, {}, runs)}) == 1


def test_one_run_of_an_array_is_resumed_alone_and_keeps_its_index(tools, runs):
    second = start(ARRAY, {}, {}, runs)[1]
    tools.install("sbatch", f'cat "$2" > {tools.folder}/script; echo 99')
    resume(second, {})
    assert second.read_native_id() == "99_2"
    assert "#SBATCH --array=2" in tools.read("script").splitlines()
    assert str(second.node_side) in tools.read("script")


def test_one_run_of_an_array_is_cancelled_alone(tools, runs):
    assert cancel(start(ARRAY, {}, {}, runs)[1])
    assert tools.read("cancelled").split() == ["77_2"]
