"""Without RUN, the commands that show one run take the latest one."""

import json
import os

import pytest
from click.testing import CliRunner

from echelon.cli import commands
from echelon.errors import ConfigError
from echelon.events import Kind, append_event
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir

SCRIPT = Script(kind=ScriptKind.FILE, target="train.py")


def finished_run(folder, run_id, mtime):
    run = RunDir(folder / run_id)
    run.create()
    run.write_description(Job(name="train", script=SCRIPT, cwd="/", python="python3", scheduler="local"), {})
    os.utime(run.description, (mtime, mtime))
    append_event(run.events, Kind.SUBMITTED, 0)
    append_event(run.events, Kind.FINISHED, 0, outcome="failed", exit_code=1, reason="x", fault=f"fault of {run_id}")
    run.attempt(0).path.mkdir()
    run.attempt(0).rank_log(0).write_text(f"output of {run_id}\n")
    return run


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda *words: CliRunner().invoke(commands, words)


@pytest.fixture
def runs(tmp_path, invoke):
    names = ("a-20260115-101500-7f3a", "b-20260116-101500-11aa")
    return [finished_run(tmp_path / "runs", name, mtime) for name, mtime in zip(names, (300, 200), strict=True)]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("status",), "fault of a-20260115-101500-7f3a"),
        (("why",), "fault of a-20260115-101500-7f3a"),
        (("logs", "--rank", "0"), "output of a-20260115-101500-7f3a"),
    ],
)
def test_latest_run_is_shown_and_named_on_stderr(invoke, runs, words, shown):
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    assert shown in result.stdout
    assert result.stderr == "echelon: latest run: a-20260115-101500-7f3a\n"


@pytest.mark.parametrize("words", [("status", "b"), ("why", "b"), ("logs", "--rank", "0", "b")])
def test_named_run_is_shown_without_a_message(invoke, runs, words):
    result = invoke(*words)
    assert "of b-20260116-101500-11aa" in result.stdout
    assert result.stderr == ""


def test_json_of_the_latest_run_is_not_mixed_with_the_message(invoke, runs):
    assert json.loads(invoke("why", "--json").stdout)["status"]["run_id"] == "a-20260115-101500-7f3a"


@pytest.mark.parametrize("command", ["status", "logs", "why"])
def test_without_runs_the_command_explains_itself(invoke, command):
    error = invoke(command).exception
    assert isinstance(error, ConfigError)
    assert error.what == "there are no runs yet"
