"""Reads from /proc what a process waits for: state, wait channel, system call, and the file that the call works on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from echelon.agent.system_calls import NAMES, WITH_DESCRIPTOR, WITH_FOLDER, WITH_PATH
from echelon.diagnosis.activity import WORKER_NAME
from echelon.diagnosis.evidence import ProcessState
from echelon.system import processes
from echelon.untrusted import clean_for_terminal

MOST_PATH_BYTES = 4096
MOST_COMMAND_CHARS = 200
MOST_NAME_CHARS = 64
AT_FDCWD = -100


@dataclass(frozen=True, kw_only=True)
class SystemCall:
    name: str
    args: tuple[int, ...] = ()


def process_state(pid: int) -> ProcessState:
    """Parts that are unknown or not permitted are empty. May block for long if the process is in state D."""
    call = parse_system_call(_read_proc_file(pid, "syscall"), platform.machine())
    return ProcessState(
        pid=pid,
        state=_state_letter(_read_proc_file(pid, "stat")),
        wait_channel=_clean_name(_read_proc_file(pid, "wchan").strip("0\n")),
        system_call=call.name,
        path=clean_for_terminal(_path_of(pid, call), most=MOST_PATH_BYTES),
        command=clean_for_terminal(_read_proc_file(pid, "cmdline").replace("\0", " ").strip(), most=MOST_COMMAND_CHARS),
        name=_clean_name(_read_proc_file(pid, "comm")),
    )


def child_pids(pid: int) -> list[int]:
    """The Python processes that a rank has started, DataLoader workers first.

    Only newer versions of torch name their workers.
    """
    found = [child for child in processes.descendants(pid) if _is_python(child)]
    return sorted(found, key=lambda child: (not _is_named_worker(child), child))


def _is_named_worker(pid: int) -> bool:
    return _read_proc_file(pid, "comm").startswith(WORKER_NAME)


def parse_system_call(text: str, machine: str) -> SystemCall:
    """Parses /proc/PID/syscall: number and six arguments. Empty for a process that runs or is in no system call.

    Python up to 3.10 sleeps in `select` without descriptors. That is reported as `nanosleep`.
    """
    words = text.split()
    try:
        number, *args = [int(word, 0) for word in words]
    except ValueError:  # empty, or "running"
        return SystemCall(name="")
    name = NAMES.get(machine, {}).get(number, "")
    if name in ("select", "pselect6") and args[:1] == [0]:
        name = "nanosleep"
    return SystemCall(name=name, args=tuple(args[:6]))


def _path_of(pid: int, call: SystemCall) -> str:
    if not call.args:
        return ""
    if call.name in WITH_DESCRIPTOR:
        return _read_link(pid, f"fd/{call.args[0]}")
    if call.name in WITH_PATH:
        return _join_path(_read_link(pid, "cwd"), _string_at(pid, call.args[0]))
    if call.name in WITH_FOLDER:
        number = _to_signed_int(call.args[0])
        folder = _read_link(pid, "cwd" if number == AT_FDCWD else f"fd/{number}")
        return _join_path(folder, _string_at(pid, call.args[1]))
    return ""


def _to_signed_int(number: int) -> int:
    """A C int from a register."""
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def _join_path(folder: str, path: str) -> str:
    return os.path.join(folder, path) if path else ""  # noqa: PTH118  pathlib would change the path


def _string_at(pid: int, address: int) -> str:
    """The C string in the memory of another process; empty if that is not permitted."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
            data = os.pread(memory.fileno(), MOST_PATH_BYTES, address)
    except (OSError, OverflowError, ValueError):
        return ""
    text, ended, _ = data.partition(b"\0")
    return os.fsdecode(text) if ended else ""


def _read_link(pid: int, name: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/{name}")  # noqa: PTH115  pathlib would change names such as pipe:[7]
    except OSError:
        return ""


def _is_python(pid: int) -> bool:
    return _is_named_worker(pid) or "python" in Path(_read_link(pid, "exe")).name


def _state_letter(stat: str) -> str:
    """The field after the name, which may contain spaces and parentheses."""
    return stat[stat.rfind(")") + 1 :].strip()[:1] if ")" in stat else ""


def _clean_name(text: str) -> str:
    return clean_for_terminal(text.strip("\0\n"), most=MOST_NAME_CHARS)


def _read_proc_file(pid: int, name: str) -> str:
    try:
        with Path(f"/proc/{pid}/{name}").open("rb") as file:
            return file.read(MOST_PATH_BYTES).decode(errors="replace")
    except OSError:
        return ""
