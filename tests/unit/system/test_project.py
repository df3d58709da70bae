"""Paths of a job whose ranks run in the snapshot."""

import os
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.backends.node_environ import node_environ
from echelon.errors import EnvironmentProblem
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.system.project import (
    check_snapshot,
    job_in_snapshot,
    path_in_snapshot,
    python_path,
    read_runnable_job,
    submit_dir,
)

JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py"),
    cwd="/home/ada/gpt/exp",
    python="python3",
    scheduler="local",
    snapshot=True,
    project="/home/ada/gpt",
)
CODE = Path("/runs/1/code")
THERE = job_in_snapshot(JOB, CODE)


def script(kind, target):
    return job_in_snapshot(replace(JOB, script=Script(kind=kind, target=target)), CODE).script.target


@pytest.mark.parametrize(
    ("kind", "target", "found"),
    [
        (ScriptKind.FILE, "train.py", "train.py"),
        (ScriptKind.FILE, "../tools/x.py", "../tools/x.py"),
        (ScriptKind.FILE, "/home/ada/gpt/exp/train.py", "/runs/1/code/exp/train.py"),
        (ScriptKind.FILE, "/opt/train.py", "/opt/train.py"),
        (ScriptKind.MODULE, "pkg.train", "pkg.train"),
        (ScriptKind.COMMAND, "./run.sh", "./run.sh"),
        (ScriptKind.COMMAND, "bash", "bash"),
        (ScriptKind.COMMAND, "/home/ada/gpt/run.sh", "/runs/1/code/run.sh"),
        (ScriptKind.COMMAND, "../../bin/tool", "/home/ada/bin/tool"),
    ],
)
def test_script_is_found_in_the_snapshot_or_the_project(kind, target, found):
    assert script(kind, target) == found


def test_the_ranks_start_in_the_same_folder_of_the_copy():
    assert THERE.cwd == "/runs/1/code/exp"
    assert submit_dir(THERE) == submit_dir(JOB) == "/home/ada/gpt/exp"


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("/home/ada/gpt/src", "/runs/1/code/src"),
        ("/home/ada/gpt", "/runs/1/code"),
        ("src", "src"),
        ("", ""),
        ("/opt/lib", "/opt/lib"),
        ("/home/ada/gpt-old/src", "/home/ada/gpt-old/src"),
        ("../../lib", "/home/ada/lib"),
    ],
)
def test_the_entries_of_the_path_are_found_too(entry, found):
    assert path_in_snapshot(entry, THERE) == found


def test_link_above_the_project_is_resolved(tmp_path):
    (tmp_path / "gpfs" / "gpt").mkdir(parents=True)
    (tmp_path / "home").symlink_to("gpfs")
    job = job_in_snapshot(replace(JOB, cwd=str(tmp_path / "gpfs/gpt"), project=str(tmp_path / "gpfs/gpt")), CODE)
    assert path_in_snapshot(str(tmp_path / "home" / "gpt" / "src"), job) == "/runs/1/code/src"


def test_packages_installed_to_be_edited_come_from_the_snapshot(tmp_path, monkeypatch):
    project, code = tmp_path / "gpt", tmp_path / "code"
    for folder in ("src", "flat/pkg", ".venv/lib"):
        (project / folder).mkdir(parents=True)
    for folder in ("src", "flat/pkg"):
        (code / folder).mkdir(parents=True)
    finder = types.ModuleType("__editable___gpt_finder")
    finder.MAPPING = {"pkg": str(project / "flat" / "pkg")}
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    monkeypatch.setattr(sys, "path", [*sys.path, str(project / "src"), str(project / ".venv/lib")])
    job = job_in_snapshot(replace(JOB, cwd=str(project), project=str(project)), code)
    assert python_path({"PYTHONPATH": "/a"}, job) == ["/a", str(code / "src"), str(code / "flat")]
    assert python_path({"PYTHONPATH": "/a"}, replace(JOB, project=None)) == ["/a"]


def test_ranks_get_the_submit_folder():
    environ = node_environ({"PYTHONPATH": "/home/ada/gpt/src:/x"}, THERE)
    assert environ["ECHELON_SUBMIT_DIR"] == "/home/ada/gpt/exp"
    assert environ["PYTHONPATH"].split(os.pathsep)[:2] == ["/runs/1/code/src", "/x"]
    told = node_environ({"PYTHONPATH": "/lost"}, replace(THERE, env={"PYTHONPATH": "/set"}))["PYTHONPATH"]
    assert told.split(os.pathsep)[0] == "/set"


def test_a_job_is_moved_once(tmp_path):
    run_dir = RunDir(tmp_path / "r")
    run_dir.create()
    run_dir.write_description(JOB, {})
    moved = read_runnable_job(run_dir)
    assert moved.cwd == str(run_dir.code / "exp")
    run_dir.write_description(moved, {})
    assert read_runnable_job(run_dir) == moved
    run_dir.write_description(replace(JOB, project=None), {})
    assert read_runnable_job(run_dir).cwd == JOB.cwd


def test_removed_snapshot_is_reported(tmp_path):
    run_dir = RunDir(tmp_path)
    with pytest.raises(EnvironmentProblem, match="snapshot of the project is missing"):
        check_snapshot(JOB, run_dir)
    check_snapshot(replace(JOB, project=None), run_dir)
