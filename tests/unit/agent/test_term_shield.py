"""A rank that handles only SIGUSR1 survives the SIGTERM of a preemption."""

import signal
import subprocess
import sys

START = """
import os, pathlib, signal, sys
from echelon.agent.notices import shield_usr1_handlers
mark = pathlib.Path(sys.argv[1])
shield_usr1_handlers(mark, os.environ)
"""
HANDLE_USR1 = "signal.signal(signal.SIGUSR1, lambda *_: print('USR1'))\n"
TERM = "signal.raise_signal(signal.SIGTERM)\n"


def run(tmp_path, text, **environ):
    argv = [sys.executable, "-c", START + text, tmp_path / "mark"]
    environ = {"SLURM_JOB_ID": "7", **environ}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_term_is_ignored_and_usr1_is_handled(tmp_path):
    text = HANDLE_USR1 + TERM + "signal.raise_signal(signal.SIGUSR1); print(mark.exists())\n"
    assert run(tmp_path, text) == (0, "USR1\nTrue\n")


def test_without_a_usr1_handler_term_ends_the_rank(tmp_path):
    assert run(tmp_path, TERM) == (-signal.SIGTERM, "")


def test_outside_of_a_batch_job_term_ends_the_rank(tmp_path):
    argv = [sys.executable, "-c", START + HANDLE_USR1 + TERM, tmp_path / "mark"]
    assert subprocess.run(argv, env={}, timeout=60, check=False).returncode == -signal.SIGTERM


def test_the_scripts_own_term_handler_counts(tmp_path):
    own = "signal.signal(signal.SIGTERM, lambda *_: print('own'))\n"
    assert run(tmp_path, HANDLE_USR1 + own + TERM + "print(mark.exists())\n") == (0, "own\nFalse\n")
    assert run(tmp_path, own + HANDLE_USR1 + TERM + "print(mark.exists())\n") == (0, "own\nFalse\n")


def test_the_script_sees_the_default_disposition(tmp_path):
    text = HANDLE_USR1 + "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
    assert run(tmp_path, text) == (0, "True\n")


def test_children_of_the_rank_die_of_term(tmp_path):
    text = HANDLE_USR1 + (
        "pid = os.fork()\n"
        "if pid == 0:\n    signal.raise_signal(signal.SIGTERM)\n    os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    assert run(tmp_path, text) == (0, "-15\n")
