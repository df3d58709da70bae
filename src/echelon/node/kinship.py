"""Who dies with whom, and who inherits the orphans: what prctl(2) promises."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """SIGKILL to this process the moment `parent` is gone, even if it went before this call."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def stay_without_parent() -> None:
    """Takes die_with_parent back, for a process that has something to clean up when its parent is gone."""
    _libc.prctl(PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """From now on whoever loses its parent below us becomes our child, daemons included, so we can end it."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
