"""What the kernel knows about processes: families, CPU time, states and signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        below = children(todo.pop())
        found += below
        todo += below
    return found


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; the second, a name, may hold spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def is_stopped(pid: int) -> bool:
    fields = _stat_fields(pid)
    return fields is not None and fields[0] in ("T", "t")


def start_time(pid: int) -> int | None:
    """In clock ticks since boot: with the pid it names a process for good. None for one that is gone."""
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def cpu_seconds(pid: int) -> float:
    """Of the process, its living descendants and those it has reaped."""
    total = 0
    for member in (pid, *descendants(pid)):
        fields = _stat_fields(member)
        if fields is not None:
            total += sum(int(value) for value in fields[11:15])
    return total / TICKS_PER_SECOND


def catches(pid: int, signum: int) -> bool:
    """Whether the process has a handler for the signal: to one without, USR1 is death."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def send_signal(pid: int, signum: int) -> None:
    """To one process; one that is already gone is no error."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass


def send_group_signal(leader: int, signum: int) -> None:
    """To the group that a process leads, or to it alone while it has yet to become a leader."""
    try:
        os.killpg(leader, signum)
    except ProcessLookupError:
        send_signal(leader, signum)


def kill_descendants(pid: int) -> None:
    for member in descendants(pid):
        send_signal(member, signal.SIGKILL)


def reaped() -> Iterator[tuple[int, int]]:
    """Children that have ended by now, whoever started them, each with its exit code, negative for a signal."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)
