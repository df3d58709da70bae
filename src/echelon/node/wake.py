"""Signals as something an event loop can wait for: a pipe that says which ones came."""

from __future__ import annotations

import os
import signal

SUPERVISOR_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""Cancel, cancel, notice."""


def wake_on(*signums: int) -> int:
    """A descriptor that becomes readable when one of the signals arrives, each as one byte."""
    wake, wake_write = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(wake_write, False)
    for signum in signums:
        signal.signal(signum, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signums)  # what came before anybody listened is heard now
    return wake
