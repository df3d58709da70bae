"""Reads from /proc what a process waits for: state, wait channel, system call, and the file that the call works on."""

from __future__ import annotations

import os
from pathlib import Path

from echelon.diagnosis.activity import WORKER_NAME
from echelon.diagnosis.evidence import ProcessState
from echelon.record import record
from echelon.system import processes
from echelon.untrusted import clean_for_terminal

MOST_PATH_BYTES = 4096
MOST_COMMAND_CHARS = 200
MOST_NAME_CHARS = 64
AT_FDCWD = -100


# Numbers of the system calls in which a rank may wait, and what their arguments mean


def parse_table(text: str) -> dict[int, str]:
    """Names by number, from `0 read 1 write`."""
    words = text.split()
    return {int(number): name for number, name in zip(words[::2], words[1::2], strict=True)}


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES = {
    "x86_64": parse_table("""
        0 read 1 write 2 open 3 close 4 stat 5 fstat 6 lstat 7 poll 17 pread64 18 pwrite64 19 readv 20 writev 21 access
        23 select 34 pause 35 nanosleep 40 sendfile 42 connect 43 accept 44 sendto 45 recvfrom 46 sendmsg 47 recvmsg
        61 wait4 72 fcntl 73 flock 74 fsync 75 fdatasync 76 truncate 77 ftruncate 82 rename 83 mkdir 84 rmdir 87 unlink
        89 readlink 137 statfs 162 sync 202 futex 217 getdents64 219 restart_syscall 230 clock_nanosleep 232 epoll_wait
        247 waitid 257 openat 258 mkdirat 262 newfstatat 263 unlinkat 264 renameat 267 readlinkat 269 faccessat
        270 pselect6 271 ppoll 281 epoll_pwait 285 fallocate 288 accept4 295 preadv 296 pwritev 316 renameat2
        326 copy_file_range 332 statx
    """),
    "aarch64": parse_table("""
        22 epoll_pwait 25 fcntl 32 flock 34 mkdirat 35 unlinkat 38 renameat 43 statfs 45 truncate 46 ftruncate
        47 fallocate 48 faccessat 56 openat 57 close 61 getdents64 63 read 64 write 65 readv 66 writev 67 pread64
        68 pwrite64 69 preadv 70 pwritev 71 sendfile 72 pselect6 73 ppoll 78 readlinkat 79 newfstatat 80 fstat 81 sync
        82 fsync 83 fdatasync 95 waitid 98 futex 101 nanosleep 115 clock_nanosleep 128 restart_syscall 202 accept
        203 connect 206 sendto 207 recvfrom 211 sendmsg 212 recvmsg 242 accept4 260 wait4 276 renameat2
        285 copy_file_range 291 statx
    """),
}
"""By `os.uname().machine`."""
WITH_DESCRIPTOR = word_set("""
    read write close fstat pread64 pwrite64 readv writev fcntl flock fsync fdatasync ftruncate getdents64 fallocate
    preadv pwritev copy_file_range
""")
"""The first argument is a file descriptor."""
WITH_PATH = word_set("open stat lstat access truncate rename mkdir rmdir unlink readlink statfs")
"""The first argument is a path."""
WITH_FOLDER = word_set("openat mkdirat newfstatat unlinkat renameat readlinkat faccessat renameat2 statx")
"""The first argument is the file descriptor of a folder, the second is a path in it."""


# The state of a process


@record
class SystemCall:
    name: str
    args: tuple[int, ...] = ()


def process_state(pid: int) -> ProcessState:
    """Parts that are unknown or not permitted are empty. May block for long if the process is in state D."""
    call = parse_system_call(_read_proc_file(pid, "syscall"), os.uname().machine)
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
