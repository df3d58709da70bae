"""A tool that prints without end, or never ends, costs bounded memory and time."""

import os
import subprocess
import sys

import pytest

from echelon.system import processes
from echelon.system.processes import ProcessResult, run_program

PYTHON = [sys.executable, "-c"]


def test_output_and_exit_code_of_a_tool():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert run_program([*PYTHON, code], os.environ, 60) == ProcessResult(code=3, out="out\n", err="err\n")


def test_endless_stderr_is_bounded_and_its_end_is_kept(monkeypatch):
    monkeypatch.setattr(processes, "MAX_ERR_BYTES", 1000)
    code = "import sys; [sys.stderr.write('x' * 1000) for _ in range(500)]; sys.stderr.write('the cause')"
    done = run_program([*PYTHON, code], os.environ, 60)
    assert len(done.err) == 1000
    assert done.err.endswith("the cause")


def test_endless_stdout_is_bounded(monkeypatch):
    monkeypatch.setattr(processes, "MAX_OUT_BYTES", 1000)
    done = run_program([*PYTHON, "print('x' * 500000)"], os.environ, 60)
    assert (done.code, done.out) == (0, "x" * 1000)


def test_tool_that_never_ends_is_killed_at_the_deadline():
    code = "import sys, time; print('so far', file=sys.stderr, flush=True)\nwhile True: print('x' * 1000)"
    with pytest.raises(subprocess.TimeoutExpired) as late:
        run_program([*PYTHON, code], os.environ, 2)
    assert late.value.timeout == 2
    assert len(late.value.output) <= processes.MAX_OUT_BYTES


def test_tool_that_is_missing_is_an_os_error():
    with pytest.raises(FileNotFoundError):
        run_program(["/nonexistent/tool"], os.environ, 5)
