"""Where every rank stands at this moment, saved before a hang is ended."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from echelon.node import processes


def is_settled(files: Iterable[Path], quiet_seconds: float, now: float) -> bool:
    """Whether every file has been written and nothing was added for a moment."""
    for file in files:
        try:
            status = file.stat()
        except FileNotFoundError:
            return False
        if status.st_size == 0 or now - status.st_mtime < quiet_seconds:
            return False
    return True


def describe(pid: int, python_stacks: str) -> str:
    """The Python stacks where there are any, and what the kernel says of the process and its children."""
    lines = [time.strftime("%Y-%m-%d %H:%M:%S"), ""]
    lines += [_kernel_view(member) for member in (pid, *processes.descendants(pid))]
    lines += ["", python_stacks or "no Python stacks: not a Python process, or one that did not answer"]
    return "\n".join(lines) + "\n"


def _kernel_view(pid: int) -> str:
    command = _read(pid, "cmdline").replace("\0", " ").strip()
    state = next((line for line in _read(pid, "status").splitlines() if line.startswith("State:")), "State: gone")
    waits_in = _read(pid, "wchan").strip("\0\n0")
    return f"pid {pid}  {state}  {'waits in ' + waits_in if waits_in else ''}  {command[:200]}"


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""
