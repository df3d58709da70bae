"""Classifies what one rank does: waits for other ranks, or is held up by itself. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence

from echelon.diagnosis.evidence import Child, Frame, ProcessState, RankEvidence, ThreadStack
from echelon.diagnosis.stacks import (
    SLEEPS,
    WRAPPERS,
    format_frame,
    format_location,
    is_own_code,
    is_user_code,
    main_thread,
    user_frame,
)
from echelon.record import record


class ActivityKind(enum.Enum):
    COLLECTIVE = "collective"
    MESSAGE = "message"
    """In send or recv."""
    JOIN = "join"
    """Waits for all ranks to create a process group, or for a value in the store."""
    MAIN_FIRST = "main_first"
    STOPPED = "stopped"
    DATA_LOADER = "data_loader"
    FILE = "file"
    LOCK = "lock"
    EXIT = "exit"
    RUNNING = "running"
    OTHER = "other"
    UNKNOWN = "unknown"


WAITS_FOR_RANKS = frozenset({ActivityKind.COLLECTIVE, ActivityKind.MESSAGE, ActivityKind.JOIN, ActivityKind.MAIN_FIRST})


@record
class Activity:
    kind: ActivityKind
    location: str = ""
    """`dataset.py:88 (time.sleep)`. For a rank that waits for others without the call: `train.py:61`."""
    operation: str = ""
    """`all_reduce`, or for a file the system call."""
    path: str = ""
    worker: int | None = None
    """The pid of the DataLoader worker at `location`."""

    @property
    def waits_for_ranks(self) -> bool:
        return self.kind in WAITS_FOR_RANKS


DISTRIBUTED = re.compile(r"/torch/distributed/(?:distributed_c10d|rendezvous|_functional_collectives)\.py$")
JOINS = frozenset({"init_process_group", "new_group", "split_group", "new_subgroups", "new_subgroups_by_enumeration"})
MESSAGES = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"})
DATA_LOADER = "/torch/utils/data/dataloader.py"
WORKER = "/torch/utils/data/_utils/worker.py"
WORKER_NAME = "pt_data_worker"
IDLE_CALLS = frozenset({"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"})
"""A DataLoader worker without work waits in one of these system calls."""
WAITS_FOR_WORKER = frozenset({"_try_get_data", "_get_data", "_shutdown_workers"})
STORE_WAITS = frozenset({"poll_for_key", "wait_for_key", "poll_until"})
LOCKS = re.compile(
    r"/(?:threading|queue|multiprocessing/(?:synchronize|queues|connection|pool)|concurrent/futures/\w+)\.py$"
)
LOCK_CALL = re.compile(r"^with |(?:^|\.)(?:acquire|join|wait|get|put|result)$")
SLEEP_CALL = re.compile(r"(?:^|\.)sleep$")
FILE_LOCKS = frozenset({"flock", "fcntl"})
AT_EXIT = "native code"


def classify(one: RankEvidence) -> Activity:
    """What the main thread of the rank does. The first rule that applies wins."""
    process = one.process or ProcessState(pid=0)
    main = main_thread(one.threads)
    location = format_location(main, process)
    if process.state in ("T", "t"):
        return Activity(kind=ActivityKind.STOPPED, location=location)
    found = None if main is None else _wait_for_ranks(main) or _wait_for_worker(one, main)
    if found is not None:
        return found
    if main is not None and _is_at_exit(main):
        return Activity(kind=ActivityKind.EXIT, location=_exit_location(one.threads, location, process))
    if _is_in_file(process):
        return Activity(kind=ActivityKind.FILE, location=location, operation=process.system_call, path=process.path)
    return _other_activity(one, main, process, location)


def _other_activity(one: RankEvidence, main: ThreadStack | None, process: ProcessState, location: str) -> Activity:
    pending = next((entry for entry in one.collectives if entry.pending), None)
    if pending is not None and not _is_asleep(main, process):
        kind = ActivityKind.MESSAGE if pending.is_p2p else ActivityKind.COLLECTIVE
        return Activity(kind=kind, location=_user_location(main), operation=pending.operation)
    if main is None:
        return Activity(kind=ActivityKind.UNKNOWN)
    if _is_in_lock(main, process):
        return Activity(kind=ActivityKind.LOCK, location=location)
    kind = ActivityKind.RUNNING if process.state == "R" else ActivityKind.OTHER
    return Activity(kind=kind, location=location)


def _user_location(main: ThreadStack | None) -> str:
    """File and line of the user's code, without the call."""
    own = None if main is None else user_frame(main)
    return format_location(main).partition(" ")[0] if own is None else format_frame(own)


def _library_frames(main: ThreadStack) -> Sequence[Frame]:
    """The frames of libraries that the user's code has called, innermost first."""
    for index, frame in enumerate(main.frames):
        if is_user_code(frame):
            return main.frames[:index]
    return main.frames


def _wait_for_ranks(main: ThreadStack) -> Activity | None:
    inside, place = _library_frames(main), _user_location(main)
    own = {frame.function for frame in inside if is_own_code(frame)}
    if "main_first" in own and own & STORE_WAITS:
        return Activity(kind=ActivityKind.MAIN_FIRST, location=place, operation="main_first")
    called = [frame.function for frame in inside if DISTRIBUTED.search(frame.file) and frame.function not in WRAPPERS]
    if called:
        return Activity(kind=_kind_of(called[-1]), location=place, operation=called[-1])
    if own & STORE_WAITS:
        return Activity(kind=ActivityKind.JOIN, location=place, operation=_outermost_own(inside))
    return None


def _kind_of(function: str) -> ActivityKind:
    if function in JOINS:
        return ActivityKind.JOIN
    return ActivityKind.MESSAGE if function in MESSAGES else ActivityKind.COLLECTIVE


def _outermost_own(inside: Sequence[Frame]) -> str:
    """The function of this package that the user has called, such as `join`."""
    return [frame.function for frame in inside if is_own_code(frame)][-1]


def _wait_for_worker(one: RankEvidence, main: ThreadStack) -> Activity | None:
    if not any(
        frame.file.endswith(DATA_LOADER) and frame.function in WAITS_FOR_WORKER for frame in _library_frames(main)
    ):
        return None
    for child in one.children:
        worker = _busy_worker(child)
        if worker is not None:
            return worker
    return Activity(kind=ActivityKind.DATA_LOADER, location=_user_location(main))


def _busy_worker(child: Child) -> Activity | None:
    """What a DataLoader worker does. None for a worker that waits for work, and for other processes."""
    process, main = child.process, main_thread(child.threads)
    is_stuck = process.state in ("T", "t", "D") or (_has_work(process) if main is None else _is_loading(main))
    if not is_stuck:
        return None
    call = f"the system call {process.system_call}" if process.system_call else ""
    return Activity(
        kind=ActivityKind.DATA_LOADER,
        location=format_location(main, process) or call,
        operation="stopped" if process.state in ("T", "t") else "",
        path=process.path if _is_in_file(process) else "",
        worker=process.pid,
    )


def _has_work(process: ProcessState) -> bool:
    """For a worker without a stack: a child of a fork server, which does not inherit the handler of the rank."""
    return process.name.startswith(WORKER_NAME) and process.system_call not in IDLE_CALLS


def _is_loading(main: ThreadStack) -> bool:
    """The worker's loop has called something else than the queue from which it gets its work."""
    loop = next((index for index, frame in enumerate(main.frames) if frame.file.endswith(WORKER)), None)
    return loop is not None and not any(LOCKS.search(frame.file) for frame in main.frames[max(0, loop - 1) : loop])


def _is_at_exit(main: ThreadStack) -> bool:
    """The script is left: its module is not on the stack. Functions of `atexit` and `threading._shutdown` run then."""
    return not main.is_truncated and not any(frame.function == "<module>" for frame in main.frames)


def _exit_location(threads: Sequence[ThreadStack], location: str, process: ProcessState) -> str:
    """At exit Python waits for threads. The user's code in one of them is of more interest than `_shutdown`.

    Functions of `atexit` that are written in C have no frame.
    """
    others = [format_location(thread) for thread in threads if not thread.is_main and user_frame(thread) is not None]
    if location.endswith("._shutdown") and others:
        return f"{location}, which waits for a thread in {others[0]}"
    return location or (f"the system call {process.system_call}" if process.system_call else AT_EXIT)


def _is_in_file(process: ProcessState) -> bool:
    """In an uninterruptible wait, or in a system call on a file. Pipes, sockets and devices are no files."""
    has_file = process.path.startswith("/") and (not process.path.startswith("/dev/") or "/shm/" in process.path)
    return process.state == "D" or (process.state == "S" and has_file)


def _is_asleep(main: ThreadStack | None, process: ProcessState) -> bool:
    """The rank sleeps on purpose, so a pending collective was started asynchronously."""
    own = None if main is None else user_frame(main)
    if own is not None and own.call:
        return bool(SLEEP_CALL.search(own.call))
    return process.system_call in SLEEPS


def _is_in_lock(main: ThreadStack, process: ProcessState) -> bool:
    innermost = main.frames[0] if main.frames else None
    if innermost is None or process.state == "R":
        return False
    return bool(LOCKS.search(innermost.file)) or (
        process.system_call == "futex" and bool(LOCK_CALL.search(innermost.call))
    )
