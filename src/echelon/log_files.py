"""The output of ranks on disk: log files in parts, and the index of a node, which stores the order of the output.

A file beyond its size limit drops its middle parts.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

PARTS = 4
"""A file at its limit consists of its first part and its three newest."""


def _name_around_offset(path: Path) -> tuple[str, str]:
    """The text before and after the start offset in the name of a part."""
    return (f"{path.stem}.", path.suffix) if path.suffix == ".out" else (f"{path.name}.", "")


def list_parts(path: Path) -> list[tuple[int, Path]]:
    """The parts of the file whose first part is `path`, each with the number of bytes before it, in order."""
    found = [(0, path)] if path.exists() else []
    before, after = _name_around_offset(path)
    for other in path.parent.glob(f"{escape(before)}*{escape(after)}"):
        start = other.name[len(before) : len(other.name) - len(after)]
        if start.isdecimal() and start.isascii():
            found.append((int(start), other))
    return sorted(found)


class SplitFile:
    """Appends to a file in parts. Lists the folder only in the constructor and when a part begins."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Keeps at most `max_bytes`; 0 keeps all."""
        self.path = path
        self.problem: OSError | None = None
        """Set after the middle was dropped."""
        self._part_bytes = max(1, max_bytes // PARTS) if max_bytes else 0
        self._start, self._current = (list_parts(path) or [(0, path)])[-1]
        self._fd: int | None = _open_append(self._current)

    @property
    def end(self) -> int:
        """The number of bytes written to all parts."""
        return self._start + os.fstat(self._descriptor()).st_size

    def append(self, view: memoryview) -> tuple[int, int]:
        """Writes as much as the current part can take. Returns the offset in the whole file and the number of bytes."""
        room = self._bytes_left() if self._part_bytes else len(view)
        if room <= 0:
            self._begin_part()
            room = self._part_bytes
        fd = self._descriptor()
        written = os.write(fd, view[:room])
        end = os.lseek(fd, 0, os.SEEK_CUR)  # the true offset: other processes may append too
        return self._start + end - written, written

    def _bytes_left(self) -> int:
        return self._part_bytes - os.fstat(self._descriptor()).st_size

    def append_block(self, block: bytes, mark: bytes) -> None:
        """Writes the block into one part. Ends a full part with `mark`."""
        room = self._bytes_left() if self._part_bytes else len(block) + len(mark)
        if room < min(self._part_bytes, len(block) + len(mark)):
            self._write_all(mark)
            self._begin_part()
        self._write_all(block)

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor(), view) :]

    def _begin_part(self) -> None:
        self._start = self.end
        before, after = _name_around_offset(self.path)
        self._current = self.path.with_name(f"{before}{self._start}{after}")
        self.close()
        self._descriptor()
        for _, part in list_parts(self.path)[1 : 1 - PARTS]:
            part.unlink(missing_ok=True)
            self.problem = OSError(errno.EFBIG, f"{self.path.name} is longer than --log-max; its middle is dropped")

    def _descriptor(self) -> int:
        if self._fd is None:
            self._fd = _open_append(self._current)
        return self._fd

    def close(self) -> None:
        """Closes the descriptor. The next write opens the file again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _open_append(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


TEXT_PREFIX = b"|"
NEXT_PART = b">"
"""The last line of an index that continues in another part."""
MAX_MERGED_BYTES = 1 << 16
MERGE_SECONDS = 0.2
"""Output of one rank within this time has one line in the index. It reaches readers with this delay."""


@dataclass(frozen=True)
class Piece:
    """One line of an index: part of the output of one rank."""

    rank: int
    start: int
    length: int
    width: int

    @property
    def file(self) -> str:
        return f"rank-{self.rank}.out"

    @property
    def end(self) -> int:
        return self.start + self.length

    def line(self) -> bytes:
        return f"{self.rank:0{self.width}} {self.start} {self.length}\n".encode()

    def is_continued_by(self, other: Piece) -> bool:
        return (self.rank, self.end) == (other.rank, other.start) and other.length > 0


def parse_piece(line: bytes) -> Piece | None:
    """None for a truncated or invalid line."""
    words = line.split(b" ")
    if len(words) != 3 or not all(word.isdigit() and len(word) < 20 for word in words):
        return None
    rank, start, length = map(int, words)
    return Piece(rank, start, length, width=len(words[0]))


class NodeIndex:
    """Appends to the index of a node. Merges consecutive pieces of one rank. A full disk does not stop the run."""

    def __init__(self, path: Path, max_bytes: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        """Keeps at most `max_bytes` of the index and of the log of each rank; 0 keeps all."""
        self._file = SplitFile(path, max_bytes)
        self._max_bytes = max_bytes
        self._clock = clock
        self._pending: Piece | None = None
        self._written_at = -math.inf
        self._problem: OSError | None = None

    @property
    def problem(self) -> OSError | None:
        return self._problem or self._file.problem

    def rank_log(self, path: Path, *, width: int) -> RankLogFile:
        return RankLogFile(path, self, width=width, max_bytes=self._max_bytes)

    def add_piece(self, piece: Piece) -> None:
        if self._pending is not None and self._pending.is_continued_by(piece):
            self._pending = replace(self._pending, length=self._pending.length + piece.length)
        else:
            self.flush()
            self._pending = piece
        if not piece.length or self._pending.length >= MAX_MERGED_BYTES:
            self.flush()
        self.flush_if_due()

    def seconds_until_due(self) -> float:
        """Infinite if no piece is pending."""
        return math.inf if self._pending is None else max(0.0, self._written_at + MERGE_SECONDS - self._clock())

    def flush_if_due(self) -> None:
        if self.seconds_until_due() <= 0:
            self.flush()

    def flush(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._append(pending.line())

    def write(self, data: bytes) -> None:
        """Appends whole lines that are not pieces."""
        if data:
            self.flush()
        is_large = self._max_bytes and len(data) > self._max_bytes // PARTS
        for block in data.splitlines(keepends=True) if is_large else filter(None, [data]):
            self._append(block)

    def _append(self, block: bytes) -> None:
        self._written_at = self._clock()
        try:
            self._file.append_block(block, NEXT_PART + b"\n")
        except OSError as error:
            self._problem = error

    def close_until_next_write(self) -> None:
        """Closes the file until the next write."""
        self._file.close()

    def close(self) -> None:
        self.flush()
        self.close_until_next_write()


class RankLogFile:
    """Appends to a rank's log and adds each piece to the index. A full disk loses output and does not stop the run."""

    def __init__(self, path: Path, index: NodeIndex, *, width: int, max_bytes: int) -> None:
        """Keeps at most `max_bytes`; 0 keeps all."""
        self.index = index
        self._file = SplitFile(path, max_bytes)
        self._rank = int(path.stem.removeprefix("rank-"))
        self._width = width
        self._problem: OSError | None = None

    @property
    def problem(self) -> OSError | None:
        return self._problem or self._file.problem

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                start, written = self._file.append(view)
                self._add_piece(start, written)
                view = view[written:]
        except OSError as error:
            self._problem = error

    def _add_piece(self, start: int, length: int) -> None:
        self.index.add_piece(Piece(self._rank, start, length, self._width))

    def flush(self) -> None:
        self.index.flush()

    def end(self) -> None:
        """Adds an empty piece to the index: the rank has ended, and its last line may lack a newline."""
        self._add_piece(self._file.end, 0)

    def close(self) -> None:
        """Closes the file until the next write."""
        self._file.close()
