"""Real processes for the tests of the collectors."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def until(condition, seconds=30.0):
    """The first true result. Fails after the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("it did not happen in time")


@contextlib.contextmanager
def running(*argv, **options):
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            process.kill()


RANK = """
import faulthandler, os, sys, time
from echelon.agent.run_script import STACKS_SIGNAL
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True, chain=False)


def in_parent():
    time.sleep(600)


def in_child():
    time.sleep(600)


if len(sys.argv) > 3 and os.fork() == 0:
    in_child()
open(sys.argv[2], "w").close()
in_parent()
"""


@contextlib.contextmanager
def python_rank(folder: Path, *, fork: bool = False):
    """A process that writes its stacks as a rank does, asleep in `in_parent` of rank.py."""
    script, stacks, ready = folder / "rank.py", folder / "stacks-0", folder / "ready"
    script.write_text(RANK)
    with running(sys.executable, script, stacks, ready, *(["fork"] if fork else []), start_new_session=True) as process:
        until(ready.exists)
        try:
            yield process.pid, stacks
        finally:
            os.killpg(process.pid, signal.SIGKILL)
