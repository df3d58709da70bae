"""How a script ends is recorded. What it prints and its exit code are those of `python script`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import echelon

SOURCE = str(Path(echelon.__file__).parents[1])
START = """
import sys
from pathlib import Path
from echelon.agent.run_script import run_as_main
from echelon.job import Script, ScriptKind
folder = Path(sys.argv[1])
script = Script(kind=ScriptKind.FILE, target=sys.argv[2], args=())
run_as_main(script, folder / "error", folder / "stacks", folder / "fatal")
"""
SEGFAULT = "import ctypes\ndef step():\n    ctypes.string_at(0)\nstep()\n"


def run(argv, **environ):
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    environ = {**clean, "PYTHONPATH": SOURCE, **environ}
    return subprocess.run([sys.executable, *argv], env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def both(tmp_path):
    """Runs a script as a rank does and as python does. Returns both results."""

    def both(text, **environ):
        script = tmp_path / "train.py"
        script.write_text(text)
        return run(["-c", START, str(tmp_path), str(script)], **environ), run([str(script)], **environ)

    return both


def ends(result):
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("'no data'", "no data"),
        ("'first\\nsecond'", "first\nsecond"),
        ("('a', 1)", "('a', 1)"),
        ("''", ""),
        ("None", None),
        ("0", None),
        ("3", None),
        ("True", None),
        ("", None),
    ],
)
def test_the_text_of_sys_exit_is_recorded(both, tmp_path, code, message):
    ours, theirs = both(f"import sys\nprint('out')\nsys.exit({code})\n")
    assert ends(ours) == ends(theirs)
    error = tmp_path / "error"
    assert error.exists() == (message is not None)
    if message is not None:
        record = json.loads(error.read_text())
        assert (record["type"], record["message"], record["traceback"]) == ("SystemExit", message, "")
        assert record["time"] > 0


def test_an_exit_text_that_cannot_be_printed_is_not_recorded(both, tmp_path):
    ours, theirs = both("class Bad:\n    def __str__(self):\n        raise ValueError\nraise SystemExit(Bad())\n")
    assert (ours.returncode, ours.stdout) == (theirs.returncode, theirs.stdout)
    assert not (tmp_path / "error").exists()


def test_a_crash_leaves_a_stack_and_prints_nothing(both, tmp_path):
    ours, theirs = both(SEGFAULT)
    assert ends(ours) == ends(theirs) == (-signal.SIGSEGV, "", "")
    assert f'File "{tmp_path}/train.py", line 3 in step' in (tmp_path / "fatal").read_text()


@pytest.mark.parametrize("signum", ["SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"])
def test_each_fatal_signal_leaves_a_stack(both, tmp_path, signum):
    ours, _ = both(f"import os, signal\nos.kill(os.getpid(), signal.{signum})\n")
    assert ends(ours) == (-getattr(signal, signum), "", "")
    assert "train.py" in (tmp_path / "fatal").read_text()


@pytest.mark.parametrize(
    ("head", "environ"), [("import faulthandler\nfaulthandler.enable()\n", {}), ("", {"PYTHONFAULTHANDLER": "1"})]
)
def test_requested_stack_is_printed_on_stderr(both, tmp_path, head, environ):
    ours, _ = both(head + SEGFAULT, **environ)
    assert ours.returncode == -signal.SIGSEGV
    assert "in step" in ours.stderr
    assert not (tmp_path / "fatal").exists() or (tmp_path / "fatal").read_text() == ""
