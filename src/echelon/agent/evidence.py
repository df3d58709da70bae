"""Collects the evidence of a hang from the ranks of this node, before anything is killed.

Order matters: the signal that asks for the stacks interrupts the system call in which the rank waits, so /proc is read
first.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from echelon.agent.process_state import child_pids, process_state
from echelon.agent.run_script import STACKS_SIGNAL
from echelon.agent.worker_server import socket_address
from echelon.diagnosis.activity import IDLE_CALLS
from echelon.diagnosis.evidence import Child, Frame, ProcessState, RankEvidence, ThreadStack
from echelon.diagnosis.flight import FlightRecord, parse_flight
from echelon.diagnosis.stacks import parse_stacks, user_frame
from echelon.record import record
from echelon.system import processes
from echelon.untrusted import read_regular

HANDLERS = ("fr_trace_json", "dump_nccl_trace_json")
"""The second one is its name in older versions of torch."""
MOST_ANSWER_BYTES = 32 << 20
MOST_STACK_BYTES = 512 << 10
MOST_CHILDREN = 8
FLIGHT_SECONDS = 1.0
STACKS_SECONDS = 1.0
"""For each process."""
QUIET_SECONDS = 0.05
POLL_SECONDS = 0.005
SILENT = ("T", "t", "Z")
"""States of a process that handles no signal now."""
MOST_SOURCE_BYTES = 4 << 20
MOST_CALL_CHARS = 60
STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
WITH = re.compile(r"^(?:async )?with ([A-Za-z_][\w.]*)(?: as \w+)?:")
CALL = re.compile(r"([A-Za-z_][\w.]*)\(")
KEYWORDS = frozenset({"if", "elif", "while", "for", "in", "not", "and", "or", "return", "assert", "lambda", "yield"})
BLOCKING = re.compile(
    r"(?:^|\.)(?:accept|acquire|barrier|communicate|connect|flock|fsync|get|item|join|lockf|open|poll|put|read|readinto"
    r"|readline|recv|result|run|select|send|sleep|sync|synchronize|wait|write)$"
)


@record
class RankSource:
    """Where the evidence of one rank comes from."""

    rank: int
    host: str
    pid: int
    stacks_file: Path
    """The file to which the rank and its forked children append their stacks."""
    server: Path
    """The socket of the rank's worker server. It need not exist."""
    idle_seconds: float = 0.0
    step: int | None = None


@record
class CollectedRank:
    evidence: RankEvidence
    stacks_text: str = ""
    """What faulthandler wrote, for the rank only."""
    flight_json: bytes = b""


class EvidenceCollector:
    """Collects from all ranks at once, in threads: reading /proc of a process in state D may block without end."""

    def __init__(self, sources: Iterable[RankSource], *, seconds: float) -> None:
        self._sources = tuple(sources)
        self._deadline = time.monotonic() + seconds
        self._found: dict[int, CollectedRank] = {}
        for source in self._sources:
            threading.Thread(target=self._collect, args=(source,), daemon=True).start()

    def _collect(self, source: RankSource) -> None:
        try:
            self._found[source.rank] = collect(source, deadline=self._deadline)
        except Exception:  # noqa: BLE001  evidence is an aid: a rank without it must not delay the others
            self._found[source.rank] = _empty_evidence(source)

    @property
    def is_done(self) -> bool:
        """True if every rank has answered or the time is over."""
        return len(self._found) == len(self._sources) or time.monotonic() >= self._deadline

    @property
    def result(self) -> tuple[CollectedRank, ...]:
        """One item for each rank. A rank whose /proc entry did not answer has no process."""
        found = dict(self._found)
        return tuple(found.get(source.rank) or _empty_evidence(source) for source in self._sources)


def _empty_evidence(source: RankSource) -> CollectedRank:
    return CollectedRank(evidence=_make_evidence(source, None, (), (), None))


def collect(source: RankSource, *, deadline: float) -> CollectedRank:
    """Reads /proc, the flight recorder and the Python stacks of a rank and of its children. May block."""
    process = process_state(source.pid)
    children = [process_state(pid) for pid in child_pids(source.pid)[:MOST_CHILDREN]]
    data = flight_recorder(source.server, min(FLIGHT_SECONDS, deadline - time.monotonic())) or b""
    text = "" if process.state in SILENT else dump_stacks(source.pid, source.stacks_file, deadline)
    workers = tuple(_collect_child(child, source.stacks_file, deadline) for child in sorted(children, key=_is_idle))
    evidence = _make_evidence(source, process, workers, add_calls(parse_stacks(text)), parse_flight(data))
    return CollectedRank(evidence=evidence, stacks_text=text, flight_json=data)


def _make_evidence(
    source: RankSource,
    process: ProcessState | None,
    children: tuple[Child, ...],
    threads: tuple[ThreadStack, ...],
    flight: FlightRecord | None,
) -> RankEvidence:
    return RankEvidence(
        rank=source.rank,
        host=source.host,
        process=process,
        children=children,
        threads=threads,
        groups=() if flight is None else flight.groups,
        collectives=() if flight is None else flight.collectives,
        has_flight=flight is not None,
        idle_seconds=source.idle_seconds,
        step=source.step,
    )


def _is_idle(process: ProcessState) -> bool:
    """A DataLoader worker without work waits in poll. Workers that do something else are asked first."""
    return process.system_call in IDLE_CALLS


def _collect_child(process: ProcessState, stacks_file: Path, deadline: float) -> Child:
    text = "" if process.state in SILENT else dump_stacks(process.pid, stacks_file, deadline)
    own = [_without_parent(thread) for thread in parse_stacks(text) if thread.is_main]
    return Child(process=process, threads=add_calls(own))


def _without_parent(thread: ThreadStack) -> ThreadStack:
    """A forked child has the frames of the rank below its own."""
    for index, frame in enumerate(thread.frames):
        if frame.function == "_bootstrap" and frame.file.endswith("/multiprocessing/process.py"):
            return ThreadStack(frames=thread.frames[:index], is_main=True)
    return thread


def dump_stacks(pid: int, file: Path, deadline: float) -> str:
    """What the process appends to the file when it gets STACKS_SIGNAL. Empty if it has no handler for it.

    A forked child of a rank inherits handler and file. Processes that share a file must be asked one after the other.
    """
    if not processes.has_handler(pid, STACKS_SIGNAL):
        return ""
    before = _file_size(file)
    processes.send_signal(pid, STACKS_SIGNAL)
    _wait_until_quiet(file, before, min(deadline, time.monotonic() + STACKS_SECONDS))
    try:
        with file.open("rb") as stream:
            stream.seek(before)
            return stream.read(MOST_STACK_BYTES).decode(errors="replace")
    except OSError:
        return ""


def _file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _wait_until_quiet(file: Path, before: int, deadline: float) -> None:
    """faulthandler does not mark the end of its output. It is over if the file has grown and then stays as it is."""
    size, since = before, time.monotonic()
    while (now := time.monotonic()) < deadline:
        current = _file_size(file)
        if current != size:
            size, since = current, now
        if size > before and now - since >= QUIET_SECONDS:
            return
        time.sleep(POLL_SECONDS)


def flight_recorder(server: Path, timeout: float) -> bytes | None:
    """The state of the flight recorder as JSON, from the worker server of a rank; None without an answer in time."""
    deadline = time.monotonic() + timeout
    for handler in HANDLERS:
        try:
            status, body = _request_handler(server, handler, deadline)
        except (OSError, ValueError):
            return None
        if status == 200:
            return body
    return None


def _request_handler(server: Path, handler: str, deadline: float) -> tuple[int, bytes]:
    """Status and body. Raises OSError and ValueError. Without a Content-Length the server waits 5 s for a body."""
    request = f"POST /handler/{handler} HTTP/1.1\r\nHost: rank\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, socket_address(server) as address:
        connection.settimeout(_seconds_left(deadline))
        connection.connect(address)
        connection.sendall(request.encode())
        answer = _receive_answer(connection, deadline)
    head, found, body = answer.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if not found or len(words) < 2:
        raise ValueError("not an HTTP answer")
    return int(words[1]), body


def _receive_answer(connection: socket.socket, deadline: float) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MOST_ANSWER_BYTES:
        connection.settimeout(_seconds_left(deadline))
        piece = connection.recv(1 << 16)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
    raise ValueError(f"the answer has more than {MOST_ANSWER_BYTES} bytes")


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


# What the user's line calls. faulthandler does not show calls of C functions such as time.sleep. Only the name of the
# called function is kept: the rest of the line may contain secrets.


def add_calls(threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The same stacks. The innermost frame of the user's code in each has its `call` if the source can be read."""
    return tuple(_add_call(thread) for thread in threads)


def _add_call(thread: ThreadStack) -> ThreadStack:
    own = user_frame(thread)
    if own is None or own.call:
        return thread
    index = thread.frames.index(own)
    found = replace(own, call=parse_call(_source_line(own)))
    return replace(thread, frames=(*thread.frames[:index], found, *thread.frames[index + 1 :]))


def _source_line(frame: Frame) -> str:
    if not frame.file.endswith(".py"):
        return ""
    try:
        lines = read_regular(Path(frame.file), MOST_SOURCE_BYTES).decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return ""
    return lines[frame.line - 1] if 0 < frame.line <= len(lines) else ""


def parse_call(line: str) -> str:
    """The one call of a source line: `time.sleep`, or `with lock`. Of several calls the one that can block.

    Empty if that is not clear.
    """
    text = STRING.sub("''", line.strip()).partition("#")[0]
    lock = WITH.match(text)
    if lock is not None:
        return f"with {lock[1]}"[:MOST_CALL_CHARS]
    if text.startswith(("def ", "async def ", "class ", "@")):
        return ""
    names = [name for name in dict.fromkeys(CALL.findall(text)) if name not in KEYWORDS]
    likely = names if len(names) == 1 else [name for name in names if BLOCKING.search(name)]
    return likely[0][:MOST_CALL_CHARS] if len(likely) == 1 else ""
