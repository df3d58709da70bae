"""Parses the stacks that Python's faulthandler writes, and finds the user's own code in them. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from echelon.diagnosis.evidence import Frame, ProcessState, ThreadStack
from echelon.text import format_ranks
from echelon.untrusted import clean_for_terminal

MOST_TEXT = 512 << 10
MOST_NAME = 200
MOST_THREADS = 12
MOST_FRAMES_OF_OTHERS = 12
"""Frames that are kept of a thread that is not the main thread."""
FRAMES_OF_FAULTHANDLER = 100
"""faulthandler writes no more. Python from 3.13 on does not mark that frames are missing."""
HEAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-fA-F]+(?: \[.*\])? \(most recent call first\):?$")
"""Python from 3.14 on adds the name of the thread in brackets."""
FRAME = re.compile(r'^  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')
ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
CUT = "..."

LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3(?:\.\d+t?)?/|/python3\d+\.zip/|^<frozen ")
OWN = re.compile(rf"^{re.escape(str(Path(__file__).parent.parent))}/|^echelon/|/echelon\.pyz/")
"""This package: as it is installed, and the two forms of its file names in echelon.pyz, compiled and as source."""
WRAPPERS = frozenset({"wrapper", "wrapped", "inner", "_fn", "_wrapped_call_impl", "_call_impl", "decorate_context"})
SLEEPS = frozenset({"nanosleep", "clock_nanosleep"})


def parse_stacks(text: str) -> tuple[ThreadStack, ...]:
    """The stacks of one dump. Lines that do not belong to a stack are skipped. The main thread is the last one."""
    found = [_parse_thread(lines) for lines in _split_threads(text[-MOST_TEXT:])]
    main = _main_index(found)
    kept = [thread for index, thread in enumerate(found) if index != main][:MOST_THREADS]
    threads = tuple(_shorten(thread) for thread in kept)
    return threads if main is None else (*threads, _as_main(found[main]))


def _split_threads(text: str) -> Iterator[list[str]]:
    """The lines below each head."""
    current: list[str] | None = None
    for line in text.splitlines():
        if HEAD.match(line):
            if current is not None:
                yield current
            current = []
        elif current is not None:
            current.append(line)
    if current is not None:
        yield current


def _parse_thread(lines: Sequence[str]) -> ThreadStack:
    block = list(itertools.takewhile(lambda line: line.startswith("  "), lines))
    frames = tuple(_parse_frame(found) for found in map(FRAME.match, block) if found is not None)
    cut = any(line.strip() == CUT for line in block) or len(frames) >= FRAMES_OF_FAULTHANDLER
    return ThreadStack(frames=frames, is_truncated=cut)


def _parse_frame(found: re.Match[str]) -> Frame:
    line = found["line"]
    return Frame(
        file=_clean_text(found["file"] or ""),
        line=int(line[:9]) if line.isdigit() else 0,
        function=_clean_text(found["function"]),
    )


def _clean_text(text: str) -> str:
    return clean_for_terminal(ESCAPE.sub(_unescape, text), most=MOST_NAME).replace("\n", "").replace("\t", "")


def _unescape(found: re.Match[str]) -> str:
    code = int(found[1] or found[2] or found[3], 16)
    is_text = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    return chr(code) if is_text else found[0]


def _main_index(threads: Sequence[ThreadStack]) -> int | None:
    """The last thread that the threading module did not start. Python lists the oldest thread last."""
    for index in reversed(range(len(threads))):
        if not _is_started_by_threading(threads[index]):
            return index
    return None


def _is_started_by_threading(thread: ThreadStack) -> bool:
    outermost = thread.frames[-1] if thread.frames else None
    return outermost is not None and outermost.function == "_bootstrap" and outermost.file.endswith("/threading.py")


def _as_main(thread: ThreadStack) -> ThreadStack:
    return ThreadStack(frames=thread.frames, is_main=True, is_truncated=thread.is_truncated)


def _shorten(thread: ThreadStack) -> ThreadStack:
    cut = thread.is_truncated or len(thread.frames) > MOST_FRAMES_OF_OTHERS
    return ThreadStack(frames=thread.frames[:MOST_FRAMES_OF_OTHERS], is_truncated=cut)


def main_thread(threads: Sequence[ThreadStack]) -> ThreadStack | None:
    return next((thread for thread in threads if thread.is_main), None)


def is_own_code(frame: Frame) -> bool:
    """Whether the frame is in this package."""
    return bool(OWN.search(frame.file))


def is_user_code(frame: Frame) -> bool:
    """Whether the frame is neither in an installed package nor in the standard library nor in this package."""
    return bool(frame.file) and not LIBRARY.search(frame.file) and not is_own_code(frame)


def user_frame(thread: ThreadStack) -> Frame | None:
    """The innermost frame of the user's own code."""
    return next((frame for frame in thread.frames if is_user_code(frame)), None)


def format_location(thread: ThreadStack | None, process: ProcessState | None = None) -> str:
    """Where the user's code is and what it calls: `dataset.py:88 (time.sleep)`. Empty if unknown.

    Without user code, for example for a module that is installed, the innermost frame outside of the standard library.
    """
    frames = () if thread is None else thread.frames
    for is_wanted in (is_user_code, _is_in_package):
        for index, frame in enumerate(frames):
            if is_wanted(frame):
                inner = _called_function(frame, frames[:index], process)
                return format_frame(frame) + (f" ({inner})" if inner else "")
    return format_function(frames[-1]) if frames else ""


def format_function(frame: Frame) -> str:
    """`threading._shutdown`."""
    return f"{PurePosixPath(frame.file).stem}.{frame.function}"


def format_frame(frame: Frame) -> str:
    """`dataset.py:88`, and for an installed package `torch/utils/data/dataloader.py:1287`."""
    _, _, inside = frame.file.rpartition("-packages/")
    name = inside if inside != frame.file else PurePosixPath(frame.file).name
    return f"{name or '?'}:{frame.line or '?'}"


def _is_in_package(frame: Frame) -> bool:
    return "-packages/" in frame.file and not is_own_code(frame)


def _called_function(frame: Frame, inner: Sequence[Frame], process: ProcessState | None) -> str:
    """What the frame calls: by its source line, by the next frame, or by the system call."""
    if frame.call:
        return frame.call
    for called in reversed(inner):
        if called.function not in WRAPPERS:
            return format_function(called)
    if process is not None and process.system_call in SLEEPS and not inner:
        return "time.sleep"
    return ""


def format_grouped_stacks(threads: Mapping[int, ThreadStack]) -> tuple[str, ...]:
    """The stacks of the main threads, each once, below the ranks that share it."""
    groups: dict[tuple[Frame, ...], list[int]] = {}
    for rank in sorted(threads):
        groups.setdefault(threads[rank].frames, []).append(rank)
    lines: list[str] = []
    for frames, ranks in groups.items():
        lines.append(f"{format_ranks(ranks)} (innermost call first)")
        lines += [f"  {frame.file}:{frame.line or '?'} in {frame.function}" for frame in frames]
        lines += [] if frames else ["  no Python frame"]
    return tuple(lines)
