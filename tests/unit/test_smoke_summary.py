"""The lines of pytest's summary about the smoke tests, and what their environments are made from."""

import os
import subprocess
import sys
from types import SimpleNamespace

import cuda_stubs
import pytest
import smoke_environments
from smoke_environments import Environment

from smoke_summary import smoke_lines

CU13 = "Requires-Dist: jinja2\nRequires-Dist: cuda-toolkit[cublas,cudart,cupti]==13.0.3; platform_system == 'Linux'\n"
CU12 = "Requires-Dist: nvidia-cuda-runtime-cu12 (==12.1.105) ; x\nRequires-Dist: nvidia-cudnn-cu12 (==8.9.2.26) ; x\n"


def report(version):
    return SimpleNamespace(user_properties=[("smoke", version)])


def environment(problem):
    return SimpleNamespace(python="3.14", torch="2.15.0", problem=problem)


def test_summary_counts_tests_by_python_and_torch():
    reports = [report("Python 3.12.1 (torch 2.13.0)")] * 2 + [report("Python 3.11.7 (torch 2.13.0+cpu)")]
    line = "smoke tests: 2 on Python 3.12.1 (torch 2.13.0), 1 on Python 3.11.7 (torch 2.13.0+cpu)"
    assert smoke_lines(reports, [environment("")]) == [line]


def test_summary_names_a_python_that_was_not_run():
    lines = smoke_lines([report("Python 3.12.1 (torch 2.13.0)")], [environment("no gcc")])
    assert lines[1:] == ["not run by the smoke tests: Python 3.14 with torch 2.15.0: no gcc"]


def test_summary_is_empty_without_smoke_tests():
    assert smoke_lines([SimpleNamespace(user_properties=[])], [environment("no gcc")]) == []


@pytest.fixture
def session(tmp_path):
    """`session(...)` is a run of pytest on a machine with Python 3.13 and an empty cache."""
    python = tmp_path / "python3.13"
    python.write_text("#!/bin/sh\necho 3.13 final\n")
    python.chmod(0o755)
    words = (__file__, "-k", "test_summary_is_empty", "-p", "no:cacheprovider")
    without = ("SKIP_NOTHING", "PYTEST", "XDG_CACHE")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    here = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin", "ECHELON_TEST_CACHE": str(tmp_path / "cache")}

    def run(**more):
        argv = [sys.executable, "-m", "pytest", *words]
        return subprocess.run(argv, env={**inherited, **here, **more}, capture_output=True, text=True, check=False)

    return run


def test_unusable_python_fails_only_if_nothing_may_be_skipped(session):
    words = "error: Python 3.13 is on this machine, but the smoke tests cannot use it with torch 2.13.0: not installed"
    usual, strict = session(), session(SKIP_NOTHING="1")
    assert (usual.returncode, strict.returncode) == (0, 1), usual.stdout + strict.stdout
    assert words in strict.stdout
    assert words not in usual.stdout


def test_incomplete_environment_has_a_problem(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_TEST_CACHE", str(tmp_path))
    one = Environment("3.13", "2.13.0")
    assert one.problem == "not installed; run tools/smoke"
    one.path.mkdir()
    (one.path / "ready").write_text("")
    assert one.problem == "incomplete; run tools/smoke"
    one.executable.parent.mkdir()
    one.executable.touch()
    assert one.problem == ""


def test_usual_python_is_wanted_if_another_runs_the_tests(monkeypatch):
    """A patched version, because most machines run the tests with it."""
    usual = Environment("3.11", "2.13.0")
    monkeypatch.setattr(smoke_environments, "found_pythons", lambda: {"3.11": "/usr/bin/python3.11"})
    monkeypatch.setattr(sys, "version_info", (3, 12, 1, "final", 0))
    assert usual in smoke_environments.wanted_environments.__wrapped__()
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    assert usual not in smoke_environments.wanted_environments.__wrapped__()


def test_cuda_build_needs_two_real_libraries():
    assert cuda_stubs.needed_packages(CU13) == ["cuda-toolkit[cudart,cupti]==13.0.3"]
    assert cuda_stubs.needed_packages(CU12) == ["nvidia-cuda-runtime-cu12==12.1.105"]
    assert cuda_stubs.needed_packages("Requires-Dist: jinja2\n") == []
