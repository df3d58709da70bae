"""Processes: descendants, CPU time, states, signals, the death of a parent, and programs to run."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from echelon.record import record

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
STRAY_SECONDS = 2.0
MAX_OUT_BYTES = 64 << 20
MAX_ERR_BYTES = 64 << 10
PIECE_BYTES = 1 << 16


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
    """The fields of /proc/PID/stat from the third on. The second, a name, may contain spaces and parentheses."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def is_stopped(pid: int) -> bool:
    fields = _stat_fields(pid)
    return fields is not None and fields[0] in ("T", "t")


def waits_on_disk(pid: int) -> bool:
    """Whether a thread of the process is in an uninterruptible wait, as for a disk or a network file system."""
    try:
        threads = [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return any((fields := _stat_fields(thread)) is not None and fields[0] == "D" for thread in threads)


def start_time(pid: int) -> int | None:
    """Clock ticks since boot; None if the process has ended. Pid and start time identify a process uniquely."""
    fields = _stat_fields(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def cpu_seconds(pid: int) -> float:
    """CPU time of the process, of its living descendants and of the children that they have reaped."""
    total = 0
    for member in (pid, *descendants(pid)):
        fields = _stat_fields(member)
        if fields is not None:
            total += sum(int(value) for value in fields[11:15])
    return total / TICKS_PER_SECOND


def has_handler(pid: int, signum: int) -> bool:
    """Whether the process has a handler for the signal. SIGUSR1 kills a process without one."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def send_signal(pid: int, signum: int) -> None:
    """Signals one process. Ignores a process that has ended."""
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass


def send_group_signal(leader: int, signum: int) -> None:
    """Signals the process group of `leader`, or only that process if it does not lead a group yet."""
    try:
        os.killpg(leader, signum)
    except ProcessLookupError:
        send_signal(leader, signum)


def kill_descendants(pid: int) -> None:
    for member in descendants(pid):
        send_signal(member, signal.SIGKILL)


@record
class EndedChild:
    pid: int
    code: int
    """The exit code, negative for a signal."""
    peak: int
    """The largest resident set in bytes of the process, or of a child that it has reaped."""


def reap_children() -> Iterator[EndedChild]:
    """Reaps all children that have ended, adopted ones too."""
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield EndedChild(pid=pid, code=os.waitstatus_to_exitcode(status), peak=usage.ru_maxrss << 10)


def reap_pid(pid: int) -> bool:
    """Reaps this child if it has ended. Returns whether it is gone."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def kill_strays(spared: Collection[int] = ()) -> None:
    """Kills and reaps the children of this process, with all processes below them, for at most STRAY_SECONDS.

    A child in `spared` is left alone. Others are processes that a dead child left to this subreaper.
    """
    deadline = time.monotonic() + STRAY_SECONDS
    while (strays := set(children(os.getpid())).difference(spared)) and time.monotonic() < deadline:
        for pid in strays:
            for member in (pid, *descendants(pid)):
                with suppress(PermissionError):  # a program of another user, as sudo starts it
                    send_signal(member, signal.SIGKILL)
            reap_pid(pid)
        time.sleep(0.002)


PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when `parent` dies. Exits at once if `parent` is already dead."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def stay_without_parent() -> None:
    """Reverts `die_with_parent`, for a process that cleans up after the death of its parent."""
    _libc.prctl(PR_SET_PDEATHSIG, 0)


def set_subreaper() -> None:
    """Makes this process adopt every descendant that loses its parent, daemons included, so that it can end them."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


# External programs, run without a shell, with a timeout and bounded output


@record
class ProcessResult:
    code: int
    out: str
    """The first 64 MiB of standard output."""
    err: str
    """The last 64 KiB of standard error: programs print the cause at the end."""


def run_program(argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> ProcessResult:
    """Raises OSError if the program cannot start. Kills it and raises subprocess.TimeoutExpired after `seconds`."""
    deadline = time.monotonic() + seconds
    with subprocess.Popen(
        list(argv), env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, err = bytearray(), bytearray()
        try:
            _collect_output(process, out, err, deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise subprocess.TimeoutExpired(list(argv), seconds, bytes(out), bytes(err)) from late
        finally:
            process.kill()
    return ProcessResult(code=process.returncode, out=_decode_text(out), err=_decode_text(err))


def _collect_output(process: subprocess.Popen[bytes], out: bytearray, err: bytearray, deadline: float) -> None:
    """Reads both streams to their end and keeps a bounded part of each. Raises subprocess.TimeoutExpired."""
    with selectors.DefaultSelector() as selector:
        for stream in filter(None, (process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in selector.select(left):
                piece = key.fileobj.read1(PIECE_BYTES)  # type: ignore[union-attr]
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    out += piece[: MAX_OUT_BYTES - len(out)]
                else:
                    err += piece
                    del err[: max(0, len(err) - MAX_ERR_BYTES)]


def _decode_text(data: bytearray) -> str:
    return data.decode(errors="replace")
