"""Explains ranks that crashed in native code: SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping

from echelon.diagnosis.causes import Cause, Death, death
from echelon.diagnosis.death_evidence import DeathEvidence, SharedMemory
from echelon.diagnosis.exceptions import cause_of_text, first_line, signature
from echelon.diagnosis.kills import signal_of
from echelon.text import format_size

MOST_FRAMES = 10
SMALL_SHARED_MEMORY = 256 << 20
"""Containers get 64 MiB unless more is asked for. A few batches fill it."""
FULL_SHARE = 0.02
CRASHES: Mapping[int, tuple[Cause, str]] = {
    signal.SIGSEGV: (Cause.SEGFAULT, "crashed with SIGSEGV (segmentation fault)"),
    signal.SIGBUS: (Cause.BUS_ERROR, "crashed with SIGBUS (bus error)"),
    signal.SIGILL: (Cause.ILLEGAL_INSTRUCTION, "crashed with SIGILL (illegal instruction)"),
    signal.SIGFPE: (Cause.ARITHMETIC_ERROR, "crashed with SIGFPE (arithmetic error)"),
    signal.SIGABRT: (Cause.ABORTED, "aborted (SIGABRT)"),
}
STACK_HEAD = "(most recent call first):"
_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$')
_LIBRARY = re.compile(r'/(site|dist)-packages/|/lib/python3|File "<')
_WHAT = re.compile(r"^\s*what\(\):\s*(.+)$")
_THROWN = re.compile(r"terminate called after throwing an instance of '([^']+)'")
_ABORT_LINES = re.compile(
    r"Assertion .*failed|^(free|malloc|realloc|munmap_chunk)\(\): |double free or corruption|corrupted (size|double)"
    r"|stack smashing detected|terminate called|^Fatal Python error: (?!Aborted)|Watchdog caught|FATAL|Check failed"
)


def explain_crash(evidence: DeathEvidence, who: str) -> Death | None:
    """None for any other signal and for an exit code."""
    found = CRASHES.get(signal_of(evidence.code) or 0)
    if found is None:
        return None
    cause, clause = found
    frames = python_frames(evidence)
    place = f" in {_format_places(frames)}" if frames else ""
    details = frames or evidence.output[-MOST_FRAMES:]
    if cause is Cause.ABORTED:
        return _explain_abort(evidence, f"{who} {clause}", place, details)
    if cause is Cause.BUS_ERROR:
        return _bus_error(evidence, f"{who} {clause}{place}", details)
    return death(cause, f"{who} {clause}{place}", details=details, signature=f"{cause.value}{place}")


def python_frames(evidence: DeathEvidence) -> tuple[str, ...]:
    """The Python stack of the thread that crashed, innermost call first. From faulthandler's file or the output."""
    text = evidence.fatal_stack or "\n".join(evidence.output)
    _, mark, rest = text.partition("Current thread")
    _, found, stack = rest.partition(STACK_HEAD)
    if not mark or not found:
        return ()
    frames = []
    for line in stack.lstrip("\n").splitlines():
        if not _FRAME.match(line):
            break
        frames.append(line.strip())
    return tuple(frames[:MOST_FRAMES])


def _format_places(frames: tuple[str, ...]) -> str:
    """The innermost call, and the innermost one of the script itself if a library made the call."""
    own = next((frame for frame in frames if not _LIBRARY.search(frame)), frames[0])
    called = f", called from {_format_place(own)}" if own != frames[0] else ""
    return f"{_format_place(frames[0])}{called}"


def _format_place(frame: str) -> str:
    found = _FRAME.match(frame)
    return f"{found['file']}:{found['line']} ({found['name']})" if found else frame


def _bus_error(evidence: DeathEvidence, sentence: str, details: tuple[str, ...]) -> Death:
    shared = evidence.shared_memory
    named = any("insufficient shared memory" in line for line in evidence.output)
    if named or _is_full(shared):
        size = f" has {format_size(shared.size)} and" if shared.size is not None else ""
        return death(Cause.SHARED_MEMORY, f"{sentence}: /dev/shm{size} is full", details=details)
    if shared.size is not None and shared.size <= SMALL_SHARED_MEMORY:
        sentence += f": probably /dev/shm is full, it has only {format_size(shared.size)}"
        return death(Cause.SHARED_MEMORY, sentence, details=details)
    return death(Cause.BUS_ERROR, sentence, details=details, signature=sentence.partition(" crashed ")[2])


def _is_full(shared: SharedMemory) -> bool:
    return bool(shared.size) and shared.least_free is not None and shared.least_free < FULL_SHARE * (shared.size or 0)


def _explain_abort(evidence: DeathEvidence, head: str, place: str, details: tuple[str, ...]) -> Death:
    """The message of the library that called abort() decides, if it names a cause."""
    reason = abort_reason(evidence.output)
    cause = (cause_of_text(reason) if reason else None) or Cause.ABORTED
    sentence = f"{head}{place}" + (f": {first_line(reason)}" if reason else "")
    return death(cause, sentence, details=details, signature=signature(Cause.ABORTED.value, reason or place))


def abort_reason(output: tuple[str, ...]) -> str:
    """The text of a C++ exception, of an assertion or of the C library; empty if the output has none."""
    for index, line in reversed(tuple(enumerate(output))):
        what = _WHAT.match(line)
        if what:
            thrown = _THROWN.search(output[index - 1]) if index else None
            return f"{thrown[1]}: {what[1]}" if thrown else what[1]
    return next((line.strip() for line in reversed(output) if _ABORT_LINES.search(line)), "")
