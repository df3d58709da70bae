"""Makes forked ranks exit cleanly, and allows a script to open its own rendezvous."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import resource
import sys
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_GROUPS = 64
"""A gloo group uses three threads and about 0.1 MB."""
DESCRIPTORS_SHARE = 0.25
"""Share of the limit on open files. A gloo group has a socket to each other rank."""
OTHER_DESCRIPTORS = 4  # per group, besides the sockets
GLOO_THREAD_NAME = "pt_gloo"
QUIET_SECONDS = 0.01
QUIET_LIMIT_SECONDS = 5.0


@dataclass
class KeptGroups:
    """The first groups of a script and its newest ones, each up to a limit.

    The first groups are the default group and others that a model uses until the end. The limit prevents scripts that
    create and destroy groups in a loop from running out of threads or descriptors.
    """

    descriptors: float
    """The most descriptors of the first groups, and of the newest ones. One group is kept even if it has more."""
    first: list[Any] = field(default_factory=list)
    newest: deque[Any] = field(default_factory=deque)

    def add(self, group: Any) -> None:
        if not self.newest and self._fits_descriptor_limit([*self.first, group]):
            self.first.append(group)
            return
        self.newest.append(group)
        while not self._fits_descriptor_limit(self.newest):
            self.newest.popleft()  # safe: its threads had time to get the GIL while the new group connected

    def _fits_descriptor_limit(self, groups: Collection[Any]) -> bool:
        cost = sum(group.size() - 1 + OTHER_DESCRIPTORS for group in groups)
        return len(groups) == 1 or (len(groups) <= MOST_GROUPS and cost <= self.descriptors)

    @property
    def all(self) -> list[Any]:
        return [*self.first, *self.newest]


def descriptors_for_groups(limit: int) -> float:
    """`limit` is the limit on open files and may be resource.RLIM_INFINITY."""
    return float("inf") if limit == resource.RLIM_INFINITY else limit * DESCRIPTORS_SHARE


_groups = KeptGroups(descriptors=descriptors_for_groups(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))


def prepare_rank_exit() -> bool:
    """Call once in the starter, after the import of torch. Forked ranks inherit the effect. Returns false if this torch
    cannot be prepared: then torch._dynamo must not be imported before the fork."""
    atexit.register(_before_finalization)
    return _keep_gloo_groups()


def _keep_gloo_groups() -> bool:
    """Keeps references to gloo groups, so that none is destroyed while the rank runs. KeptGroups sets the limits.

    The destructor joins the group's threads while it holds the GIL. A thread of the group that has just finished a
    collective of a backward pass needs the GIL to release a Python object. This is a deadlock. The last reference is
    often a DDP model, which is freed when the script's main() returns. Imports after the fork hide this race: they take
    long enough for the thread to get the GIL.
    """
    try:
        gloo: Any = importlib.import_module("torch._C._distributed_c10d").ProcessGroupGloo
    except (ImportError, AttributeError):
        return True  # torch was built without gloo: nothing to keep
    construct = gloo.__init__

    @functools.wraps(construct)
    def construct_and_keep(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        _groups.add(self)

    try:
        gloo.__init__ = construct_and_keep
    except (AttributeError, TypeError):
        return False
    return True


def _before_finalization() -> None:
    """Runs after the script's own atexit functions."""
    for group in _groups.all:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))  # finalization must not destroy it either
    if _groups.all:
        _wait_for_gloo_threads()
    if _uses_nanobind():
        gc.unfreeze()  # it reports objects that are never collected. To collect all takes half a second of CPU time


def _uses_nanobind() -> bool:
    """Whether a module made with nanobind is loaded; triton has one."""
    contents = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
    native = [content for content in contents if not str(content.get("__file__")).endswith(".py")]
    return any(type(value).__module__ == "nanobind" for content in native for value in list(content.values()))


def _wait_for_gloo_threads() -> None:
    """Waits until all gloo threads sleep while the GIL is free. A thread that requests the GIL during finalization
    aborts the rank."""
    deadline = time.monotonic() + QUIET_LIMIT_SECONDS
    before: dict[str, str] = {"": "unknown"}
    while time.monotonic() < deadline:
        now = _gloo_threads()
        if now == before and all("State:\tS" in status for status in now.values()):
            return
        before = now
        time.sleep(QUIET_SECONDS)


def _gloo_threads() -> dict[str, str]:
    """/proc status by thread id. The status includes the context switches, so it changes if the thread has run."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            status = (task / "status").read_text(errors="replace")
        except OSError:
            continue  # the thread has ended
        if status.startswith(f"Name:\t{GLOO_THREAD_NAME}"):
            found[task.name] = status
    return found
