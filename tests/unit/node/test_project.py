"""Where a job's paths lead once its ranks run in the snapshot."""

import os
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.errors import EnvironmentProblem
from echelon.job import Job, Script, ScriptKind
from echelon.node.environ import node_environ
from echelon.node.project import check_code, job_here, moved, moved_path, python_path, submit_dir
from echelon.run_dir import RunDir

JOB = Job(
    name="gpt", script=Script(kind=ScriptKind.FILE, target="train.py"), cwd="/home/ada/gpt/exp", python="python3",
    snapshot=True, project="/home/ada/gpt",
)  # fmt: skip
CODE = Path("/runs/1/code")
THERE = moved(JOB, CODE)


def script(kind, target):
    return moved(replace(JOB, script=Script(kind=kind, target=target)), CODE).script.target


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
def test_the_script_is_found_in_the_snapshot_or_where_it_was(kind, target, found):
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
    assert moved_path(entry, THERE) == found


def test_a_link_above_the_project_hides_nothing(tmp_path):
    (tmp_path / "gpfs" / "gpt").mkdir(parents=True)
    (tmp_path / "home").symlink_to("gpfs")
    job = moved(replace(JOB, cwd=str(tmp_path / "gpfs/gpt"), project=str(tmp_path / "gpfs/gpt")), CODE)
    assert moved_path(str(tmp_path / "home" / "gpt" / "src"), job) == "/runs/1/code/src"


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
    job = moved(replace(JOB, cwd=str(project), project=str(project)), code)
    assert python_path({"PYTHONPATH": "/a"}, job) == ["/a", str(code / "src"), str(code / "flat")]
    assert python_path({"PYTHONPATH": "/a"}, replace(JOB, project=None)) == ["/a"]


def test_ranks_are_told_the_folder_that_the_run_was_started_from():
    environ = node_environ({"PYTHONPATH": "/home/ada/gpt/src:/x"}, THERE)
    assert environ["ECHELON_SUBMIT_DIR"] == "/home/ada/gpt/exp"
    assert environ["PYTHONPATH"].split(os.pathsep)[:2] == ["/runs/1/code/src", "/x"]
    told = node_environ({"PYTHONPATH": "/lost"}, replace(THERE, env={"PYTHONPATH": "/set"}))["PYTHONPATH"]
    assert told.split(os.pathsep)[0] == "/set"


def test_a_job_is_moved_once(tmp_path):
    run_dir = RunDir(tmp_path / "r")
    run_dir.create()
    run_dir.write_description(JOB, {})
    there = job_here(run_dir)
    assert there.cwd == str(run_dir.code / "exp")
    run_dir.write_description(there, {})
    assert job_here(run_dir) == there
    run_dir.write_description(replace(JOB, project=None), {})
    assert job_here(run_dir).cwd == JOB.cwd


def test_a_snapshot_that_was_removed_is_said_to_be_gone(tmp_path):
    run_dir = RunDir(tmp_path)
    with pytest.raises(EnvironmentProblem, match="snapshot of the project is gone"):
        check_code(JOB, run_dir)
    check_code(replace(JOB, project=None), run_dir)
