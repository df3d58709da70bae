"""Delivers signals to an event loop through a pipe."""

from __future__ import annotations

import os
import signal

SUPERVISOR_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCONT)
"""Cancel, cancel, notice, end of a suspension."""


def open_signal_fd(*signums: int) -> int:
    """A descriptor that becomes readable when one of the signals arrives, each as one byte."""
    wake, _ = open_signal_pipe(*signums)
    return wake


def open_signal_pipe(*signums: int) -> tuple[int, int]:
    """Both ends of the pipe of `open_signal_fd`. A process that forks needs them: its children close both."""
    wake, wake_write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_write, False)
    for signum in signums:
        signal.signal(signum, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signums)  # delivers signals that arrived before
    return wake, wake_write


def close_signal_pipe(pipe: tuple[int, int]) -> None:
    """Call in a forked child, so that its signals do not write to the parent's pipe.

    The caller passes the descriptors because `set_wakeup_fd` may return -1 here: if asyncio is imported (torch imports
    it), Python 3.12 and later have already reset the wakeup descriptor in the child.
    """
    signal.set_wakeup_fd(-1)
    for fd in pipe:
        os.close(fd)


def read_signals(wake: int) -> bytes:
    """The signals that have arrived, one byte each. Never blocks."""
    try:
        return os.read(wake, 4096)
    except BlockingIOError:
        return b""
