"""The pipe that a signal writes to, before and after a fork."""

import os
import subprocess
import sys

from echelon.system.signals import read_signals

FORKS_A_RANK = """
import os, signal, sys
from echelon.system.signals import close_signal_pipe, open_signal_pipe
# asyncio does this from Python 3.12 on, and torch imports asyncio
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
pipe = open_signal_pipe(signal.SIGCHLD)
pid = os.fork()
if pid == 0:
    close_signal_pipe(pipe)
    os._exit(any(os.path.exists(f"/proc/self/fd/{fd}") for fd in pipe))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_forked_child_closes_a_pipe_that_asyncio_has_reset():
    result = subprocess.run([sys.executable, "-c", FORKS_A_RANK], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_an_empty_pipe_has_no_signals():
    """A poll that was interrupted by a stop does not say whether a signal has come."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    assert read_signals(read) == b""
    os.write(write, b"\x12")
    assert read_signals(read) == b"\x12"
    os.close(read)
    os.close(write)
