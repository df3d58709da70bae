"""Reads input from other processes within limits: regular files, JSON, and text for a terminal.

A file in a shared folder, a message from a host, an error file of a rank or the output of a tool may be huge, deeply
nested, an endless pipe, or text with terminal escape sequences. All code that reads such input uses this module.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

MAX_JSON_BYTES = 64 << 20
MAX_JSON_DEPTH = 200
"""Python's parser fails near 1000 levels. Code that walks the result fails earlier."""


def open_regular(path: Path) -> int:
    """A file descriptor for reading. Never blocks. Raises OSError, also for links, pipes, devices and folders."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file")


def read_regular(path: Path, most: int = MAX_JSON_BYTES) -> bytes:
    """The bytes of a regular file. Raises OSError, and ValueError if it has more than `most` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most} bytes")
    return data


def read_end(path: Path, most: int) -> bytes:
    """The last bytes of a regular file, at most `most`. Raises OSError."""
    with os.fdopen(open_regular(path), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


def parse_json(data: bytes | str, *, numbers: bool = True) -> Any:
    """Raises ValueError for invalid JSON, for deep nesting, and without `numbers` for NaN and Infinity."""
    try:
        value = json.loads(data) if numbers else json.loads(data, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error
    if _is_deep(value):
        raise ValueError(f"JSON is nested more than {MAX_JSON_DEPTH} levels deep")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            item
            for parent in level
            if isinstance(parent, (dict, list))
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, (dict, list))
        ]
        if not level:
            return False
    return True


_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_SEQUENCE = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"  # titles, links, clipboard
    r"|\x1b[PX^_][^\x1b\n]*(?:\x1b\\)?"  # device control and other strings
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # cursor, screen, colour
    r"|\x1b[ -/]*[0-~]?"  # character sets, reset
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def clean_for_terminal(text: str, *, colour: bool = False, most: int | None = None) -> str:
    """Removes escape sequences, and control characters except tab and newline. `colour` keeps colours.

    Text of more than `most` characters is cut there and gets an ellipsis.
    """
    kept = _SEQUENCE.sub(lambda found: _keep_colour(found.group(), colour=colour), text)
    pieces = _COLOUR.split(kept)
    colours = [*_COLOUR.findall(kept), ""]
    clean = "".join(_CONTROL.sub("", piece) + mark for piece, mark in zip(pieces, colours, strict=True))
    return clean if most is None or len(clean) <= most else clean[:most] + "..."


class TerminalLogCleaner:
    """Cleans the bytes of a log for a terminal. Keeps colours, and turns each state of a progress bar into a line.

    A chunk may end in the middle of a character or of a line end.
    """

    def __init__(self) -> None:
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)

    def feed(self, data: bytes) -> bytes:
        return clean_for_terminal(self._decoder.decode(data), colour=True).encode(errors="replace")


def _keep_colour(sequence: str, *, colour: bool) -> str:
    return sequence if colour and _COLOUR.fullmatch(sequence) else ""
