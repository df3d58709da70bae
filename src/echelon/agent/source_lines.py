"""Adds to a stack what the user's line calls. faulthandler does not show calls of C functions such as time.sleep.

Only the name of the called function is kept: the rest of the line may contain secrets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from echelon.diagnosis.evidence import Frame, ThreadStack
from echelon.diagnosis.stacks import user_frame
from echelon.untrusted import read_regular

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
