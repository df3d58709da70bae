"""The run directory: private, trusted only when it is ours, and written whole or not at all."""

import os
import re
import resource
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir, new_run_id, write_error
from echelon.system.trust import check_run

JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py", args=("\udcff",)),
    cwd="/",
    python="py",
    scheduler="local",
)


@pytest.fixture
def run_dir(tmp_path):
    run = RunDir(tmp_path / "runs" / "gpt-1")
    run.create()
    return run


def mode(path):
    return path.stat().st_mode & 0o7777


@contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def files_up_to(size):
    """A disk that fills up, as the kernel plays it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# Names


def test_a_run_id_is_the_name_the_time_and_four_letters():
    moment = time.mktime((2026, 1, 15, 10, 15, 0, 0, 0, -1))
    assert re.fullmatch(r"gpt-20260115-101500-[0-9a-f]{4}", new_run_id("gpt", moment))


def test_two_runs_of_one_second_differ():
    assert len({new_run_id("gpt", 0.0) for _ in range(20)}) > 1


def test_every_file_of_a_run_has_its_own_name(run_dir):
    attempt = run_dir.attempt(2)
    paths = [
        run_dir.description,
        run_dir.job_script,
        run_dir.job_output,
        run_dir.node_side,
        run_dir.native_id,
        run_dir.lease,
        run_dir.token,
        run_dir.events,
        attempt.path,
        attempt.node_index("a"),
        attempt.rank_log(0),
        attempt.rank_stacks(0, 1),
        attempt.node_env("a"),
        attempt.error,
        attempt.exit_code,
    ]
    assert len(set(paths)) == len(paths)
    assert all(run_dir.path in path.parents for path in paths)


def test_file_names_in_the_run_directory(run_dir):
    assert run_dir.run_id == "gpt-1"
    assert run_dir.description.name == "run.json"
    assert run_dir.events.name == "events.jsonl"
    assert run_dir.attempt(0).rank_log(3).relative_to(run_dir.path) == Path("attempt-0/rank-3.out")


def test_attempts_are_counted_not_spelled(run_dir):
    assert run_dir.next_attempt() == 0
    for name in ("attempt-0", "attempt-10", "attempt-9", "attempt-x", "attempt-"):
        (run_dir.path / name).mkdir()
    assert [attempt.number for attempt in run_dir.attempts()] == [0, 9, 10]
    assert run_dir.next_attempt() == 11


def test_logs_of_nodes_and_ranks_are_distinguished(run_dir):
    attempt = run_dir.attempt(0)
    attempt.path.mkdir()
    for path in (attempt.node_index("b"), attempt.node_index("a"), attempt.rank_log(0), attempt.error):
        path.touch()
    assert attempt.node_indices() == [attempt.node_index("a"), attempt.node_index("b")]


# Making and trusting


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_run_is_private_with_any_umask(tmp_path, mask):
    run = RunDir(tmp_path / "deep" / "er" / "x")
    with umask(mask):
        run.create()
        run.write(run.token, b"secret")
    assert mode(run.path) == 0o700
    assert mode(run.token) == 0o600
    assert check_run(run) is run


def test_existing_run_is_not_reused(run_dir):
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        run_dir.create()


def test_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentProblem) as caught:
        RunDir(tmp_path / "file" / "run").create()
    assert str(tmp_path / "file" / "run") in caught.value.what
    assert "ECHELON_RUNS" in caught.value.hint


@pytest.mark.parametrize("bad", [0o770, 0o720, 0o702, 0o777, 0o1777])
def test_a_run_that_others_may_write_to_is_refused(run_dir, bad):
    run_dir.path.chmod(bad)
    with pytest.raises(EnvironmentProblem, match="can be written by others") as caught:
        check_run(run_dir)
    assert f"{bad:04o}" in caught.value.why


@pytest.mark.parametrize("fine", [0o700, 0o750, 0o755, 0o500])
def test_a_run_that_others_may_only_read_is_trusted(run_dir, fine):
    run_dir.path.chmod(fine)
    assert check_run(run_dir) is run_dir
    run_dir.path.chmod(0o700)


def foreign_folder(folder):
    """One of another user: root can give its own away, anyone else can look at root's."""
    if os.geteuid() != 0:
        return Path("/")
    os.chown(folder, 12345, -1)
    return folder


def test_a_run_of_another_user_is_refused(run_dir):
    with pytest.raises(EnvironmentProblem, match="belongs to another user"):
        check_run(RunDir(foreign_folder(run_dir.path)))


def test_missing_run_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="no run at"):
        check_run(RunDir(tmp_path / "nothing"))


# Writing


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_is_written_completely(run_dir):
    run_dir.write(run_dir.native_id, b"123\n")
    run_dir.write(run_dir.native_id, b"45\n")
    assert run_dir.native_id.read_bytes() == b"45\n"
    assert names(run_dir.path) == ["native_id"]


def test_mode_can_be_chosen(run_dir):
    with umask(0o022):
        run_dir.write(run_dir.job_script, b"#!/bin/sh\n", mode=0o700)
    assert mode(run_dir.job_script) == 0o700


def test_a_full_disk_leaves_the_old_file_and_no_debris(run_dir):
    run_dir.write(run_dir.native_id, b"old")
    with files_up_to(1000), pytest.raises(EnvironmentProblem, match="cannot write"):
        run_dir.write(run_dir.native_id, b"x" * 100_000)
    assert run_dir.native_id.read_bytes() == b"old"
    assert names(run_dir.path) == ["native_id"]


def test_a_target_that_cannot_be_replaced_leaves_no_debris(run_dir):
    run_dir.native_id.mkdir()
    with pytest.raises(EnvironmentProblem):
        run_dir.write(run_dir.native_id, b"data")
    assert names(run_dir.path) == ["native_id"]


def test_missing_folder_is_an_environment_problem(run_dir):
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        run_dir.write(run_dir.attempt(0).error, b"data")


@pytest.mark.parametrize(("number", "hint"), [(28, "free some space"), (122, "free some space"), (13, "can write")])
def test_hint_depends_on_the_error(number, hint):
    problem = write_error(Path("/x"), OSError(number, os.strerror(number)))
    assert hint in problem.hint
    assert problem.why == os.strerror(number)


# The description


def test_job_is_read_unchanged(run_dir):
    run_dir.write_description(JOB, {"run_id": "gpt-1"})
    assert run_dir.read_job() == JOB
    assert run_dir.read_description()["run_id"] == "gpt-1"
    assert mode(run_dir.description) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff"])
def test_invalid_description_is_a_config_error(run_dir, text):
    run_dir.description.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="not a readable run"):
        run_dir.read_description()


def test_a_run_without_a_description_is_a_config_error(run_dir):
    with pytest.raises(ConfigError) as caught:
        run_dir.read_job()
    assert caught.value.origin == str(run_dir.description)


@pytest.mark.parametrize("text", ["{}", '{"job": {"name": 3}}', '{"job": {"from": "a newer version"}}'])
def test_a_job_of_another_version_is_a_config_error(run_dir, text):
    run_dir.description.write_text(text)
    with pytest.raises(ConfigError, match="cannot read the job of gpt-1"):
        run_dir.read_job()


def test_a_file_in_the_place_of_the_runs_folder_is_named(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(OSError) as caught:
        (tmp_path / "runs" / "train-1").mkdir()
    assert write_error(tmp_path / "runs" / "train-1", caught.value).why == f"{tmp_path}/runs is a file, not a folder"
