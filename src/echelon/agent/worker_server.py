"""Starts torch's worker server in a rank. It gives the agent the flight recorder's state while the rank hangs.

The server is a C++ thread on a Unix socket. It answers without the GIL. The socket has mode 0755, so it belongs in a
folder with mode 0700.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import os
import stat
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DISTRIBUTED = "torch.distributed"
BINDINGS = "torch._C._distributed_c10d"
MAX_ADDRESS_BYTES = 107
"""The kernel's limit for the path of a Unix socket."""
RECORDER_ENVIRON = {"TORCH_FR_BUFFER_SIZE": "2000"}
"""Switches on the flight recorder in versions of torch that do not record by default. torch 2.13 does."""
STDERR = 2


def start(path: Path) -> bool:
    """Starts the server of this process. Returns false if this torch has none, or if it cannot listen at the path.

    Call it after a fork, because the thread does not survive one. torch.distributed must be imported.
    """
    try:
        create: Any = importlib.import_module(BINDINGS)._WorkerServer
        _remove_old_socket(path)
        with socket_address(path) as address, _silent_stderr():
            server = create(address)
    except Exception:  # noqa: BLE001  the server is an aid: no failure of it may end a rank
        return False
    _keep_forever(server)
    return True


def start_after_import(path: Path) -> None:
    """Starts the server when the script imports torch.distributed, which `import torch` does too."""
    if DISTRIBUTED in sys.modules:
        start(path)
        return
    owner = os.getpid()

    def start_in_rank() -> None:
        if os.getpid() == owner:  # a child of the rank must not take over the path
            start(path)

    sys.meta_path.insert(0, AfterImport(DISTRIBUTED, start_in_rank))


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls `action` once, after the module is imported. Finds no module itself, so it does not change an import."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = _found_by_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader)
        return spec

    def _call_after(self, loader: Any) -> None:
        """Replaces `exec_module` of this loader object for one call. The class and its other users do not change."""
        execute = loader.exec_module

        def execute_and_act(module: types.ModuleType) -> None:
            if module.__name__ == self._name:
                vars(loader).pop("exec_module", None)
            execute(module)
            if module.__name__ == self._name:
                self._action()

        try:
            vars(loader)["exec_module"] = execute_and_act
        except TypeError:
            pass  # an unusual loader: the rank runs without the server


def _found_by_others(
    name: str, path: Sequence[str] | None, target: types.ModuleType | None
) -> importlib.machinery.ModuleSpec | None:
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec: importlib.machinery.ModuleSpec | None = None if find is None else find(name, path, target)
        if spec is not None:
            return spec
    return None


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address of the socket that is short enough for the kernel: in a long folder, by way of a file descriptor."""
    if len(os.fsencode(path)) <= MAX_ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _remove_old_socket(path: Path) -> None:
    """torch refuses an existing path. A rank of the last generation may have left its socket."""
    try:
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
    except FileNotFoundError:
        pass


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Discards the line that torch logs at the start. What other threads print in this millisecond is lost too."""
    saved, null = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(null, STDERR)
        yield
    finally:
        os.dup2(saved, STDERR)
        os.close(saved)
        os.close(null)


def _keep_forever(server: object) -> None:
    """The destructor prints warnings and joins a thread while it holds the GIL, so it must not run at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
