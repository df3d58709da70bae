"""Reads logs as they grow: the log of one rank unchanged, or the lines of all ranks, each with its rank as a prefix."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from echelon.attempt_dir import AttemptDir
from echelon.log_files import NEXT_PART, TEXT_PREFIX, Piece, list_parts, parse_piece
from echelon.run_dir import RunDir
from echelon.text import format_size
from echelon.wire.output import LineSplitter

MAX_READ_BYTES = 8 << 20
"""The number of bytes to read at a time: logs may be larger than memory."""
MAX_INDEX_READ_BYTES = 1 << 20


class Tail:
    """Reads what was appended to a file since the last read. Leaves an unfinished line for the next read."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self.path = path
        self._position = position

    def read(self, *, to_the_end: bool = False) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return b""
        if not to_the_end:
            data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]  # progress bars end in carriage returns
        self._position += len(data)
        return data


class LogReader:
    """Reads the bytes of a rank's log by position, across all files of the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[tuple[int, Path]] = []

    def read(self, start: int, most: int, *, may_be_new: bool = True) -> bytes:
        """Reads from one file; empty if no file has that position. Lists the folder only if there may be a new file."""
        data = self._read_part(start, most)
        if data is None or (not data and may_be_new):
            self._parts = list_parts(self._path)
            data = self._read_part(start, most)
        return data or b""

    def _read_part(self, start: int, most: int) -> bytes | None:
        """None if that file does not exist any more."""
        found = [(begin, part) for begin, part in self._parts if begin <= start]
        try:
            with found[-1][1].open("rb") as file:
                file.seek(start - found[-1][0])
                return file.read(most)
        except (OSError, IndexError):
            return None

    def next_start(self, position: int) -> int | None:
        """The position at which the log continues, if the bytes at this position were dropped."""
        return next((begin for begin, _ in self._parts if begin > position), None)


class RankTail:
    """The output of one rank in one attempt. A line replaces each dropped part."""

    def __init__(self, attempt: AttemptDir, rank: int) -> None:
        self._log = LogReader(attempt.rank_log(rank))
        self._position = 0

    def read(self, most: int = MAX_READ_BYTES) -> bytes:
        """At most about `most` bytes; empty if there is nothing new."""
        data = self._log.read(self._position, most)
        following = None if data else self._log.next_start(self._position)
        if following is not None:
            data, self._position = dropped_line(following - self._position), following
            return data
        self._position += len(data)
        return data


def dropped_line(count: int) -> bytes:
    return f"(echelon: {format_size(count)} of output dropped here; a larger --log-max keeps more)\n".encode()


def dropped_index_line(count: int) -> bytes:
    return (
        f"(echelon: {format_size(count)} of the index dropped here: the next lines of each rank may be out of order,"
        " and lines of launchers are missing; a larger --log-max keeps more)\n"
    ).encode()


class IndexTail:
    """Reads the new lines of a node's index, across all files of the index."""

    def __init__(self, path: Path) -> None:
        self._log = LogReader(path)
        self._position = 0
        self._rest = b""
        self._part_is_full = False

    def read(self, *, to_the_end: bool = False) -> tuple[int, list[bytes]]:
        """The number of dropped bytes, and the complete lines after them; no lines if there is nothing new."""
        dropped, may_be_new = 0, to_the_end or self._part_is_full
        data = self._log.read(self._position, MAX_INDEX_READ_BYTES, may_be_new=may_be_new)
        following = None if data else self._log.next_start(self._position)
        if following is not None:
            dropped, self._position, self._rest = following - self._position, following, b""
            data = self._log.read(following, MAX_INDEX_READ_BYTES)
        return dropped, self._lines_of(data, to_the_end=to_the_end)

    def _lines_of(self, data: bytes, *, to_the_end: bool) -> list[bytes]:
        self._position += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        if to_the_end and not data and rest.startswith(TEXT_PREFIX):  # a truncated piece would have a wrong number
            lines, rest = [rest], b""
        self._rest = rest
        if data:
            self._part_is_full = lines[-1:] == [NEXT_PART]
        return lines

    def lines(self) -> Iterator[bytes]:
        """All lines written so far."""
        while lines := self.read(to_the_end=True)[1]:
            yield from lines


class NodeTail:
    """The output of a node's ranks, in the order of the node's index."""

    def __init__(self, index: Path) -> None:
        self._folder = index.parent
        self._index = IndexTail(index)
        self._waiting: deque[bytes | Piece] = deque()
        """Pieces of rank logs, and lines of launchers as they are shown."""
        self._ends: dict[int, int] = {}
        """The end position of the newest piece of each rank."""
        self._unordered: set[int] = set()
        """Ranks that may have pieces in the dropped part of the index."""
        self._logs: dict[str, LogReader] = {}
        self._splitters: dict[str, tuple[bytes, LineSplitter]] = {}
        self._dropped: dict[str, int] = {}

    def read(self, *, to_the_end: bool = False, most: int = MAX_READ_BYTES) -> bytes:
        """Complete lines, at most about `most` bytes.

        With `to_the_end`, unfinished lines follow after everything else was read.
        """
        shown = bytearray()
        while len(shown) < most and self._fill_queue(to_the_end=to_the_end):
            text = self._next_part(most - len(shown), to_the_end=to_the_end)
            if text is None:
                return bytes(shown)  # the index is visible before the bytes
            shown += text
        if to_the_end and not self._fill_queue(to_the_end=True):
            shown += b"".join(map(self._finish_lines, list(self._splitters)))
        return bytes(shown)

    def _fill_queue(self, *, to_the_end: bool) -> bool:
        lines: list[bytes] | None = None
        while not self._waiting and lines != []:
            dropped, lines = self._index.read(to_the_end=to_the_end)
            if dropped:
                self._waiting.append(dropped_index_line(dropped))
                self._unordered = set(self._ends)
            for line in lines:
                self._queue_line(line)
        return bool(self._waiting)

    def _queue_line(self, line: bytes) -> None:
        if line.startswith(TEXT_PREFIX):
            self._waiting.append(line[1:] + b"\n")
        piece = parse_piece(line)
        if piece is None:
            return
        end = self._ends.get(piece.rank, piece.start)
        if piece.rank in self._unordered and end < piece.start:
            self._waiting.append(replace(piece, start=end, length=piece.start - end))
        self._unordered.discard(piece.rank)
        self._ends[piece.rank] = piece.end
        self._waiting.append(piece)

    def _next_part(self, most: int, *, to_the_end: bool) -> bytes | None:
        """The next part of the output; None if its bytes are not written yet."""
        head = self._waiting[0]
        if isinstance(head, bytes) or not head.length:
            self._waiting.popleft()
            return head if isinstance(head, bytes) else self._finish_lines(head.file)
        log = self._logs.setdefault(head.file, LogReader(self._folder / head.file))
        data = log.read(head.start, min(head.length, most))
        if data:
            self._advance(head, len(data))
            return self._tag_lines(head, data)
        following = log.next_start(head.start)
        if following is not None:
            dropped = min(following - head.start, head.length)
            self._dropped[head.file] = self._dropped.get(head.file, 0) + dropped
            self._advance(head, dropped)
        elif to_the_end:
            self._waiting.popleft()
        return b"" if following is not None or to_the_end else None

    def _advance(self, head: Piece, count: int) -> None:
        self._waiting.popleft()
        if count < head.length:
            self._waiting.appendleft(replace(head, start=head.start + count, length=head.length - count))

    def _tag_lines(self, piece: Piece, data: bytes) -> bytes:
        tag = f"[{piece.rank:>{piece.width}}] ".encode()
        dropped = self._dropped.pop(piece.file, 0)
        if dropped:
            return self._finish_lines(piece.file) + tag + dropped_line(dropped) + self._tag_lines(piece, data)
        _, splitter = self._splitters.setdefault(piece.file, (tag, LineSplitter()))
        self._splitters[piece.file] = (tag, splitter)
        return b"".join(tag + line + b"\n" for line in splitter.feed(data))

    def _finish_lines(self, file: str) -> bytes:
        tag, splitter = self._splitters.pop(file, (b"", LineSplitter()))
        return b"".join(tag + line + b"\n" for line in splitter.finish())


class LogTails:
    """All output of all attempts. Includes new nodes as they appear."""

    def __init__(self, run_dir: RunDir, first_attempt: int = 0) -> None:
        self._run_dir = run_dir
        self._first = first_attempt
        self._tails: dict[Path, NodeTail] = {}

    def read(self, *, to_the_end: bool = False) -> bytes:
        for attempt in self._run_dir.attempts():
            if attempt.number >= self._first:
                for index in attempt.node_indices():
                    self._tails.setdefault(index, NodeTail(index))
        return b"".join(tail.read(to_the_end=to_the_end) for tail in self._tails.values())


def rank_logs(attempts: list[AttemptDir], *, rank: int | None, node: str | None) -> list[Path]:
    """The log files of one rank, of the ranks of one node, or of all ranks, in order."""
    found: list[Path] = []
    for attempt in attempts:
        names = [f"rank-{rank}.out"] if rank is not None else _log_names(attempt, node)
        found += [part for name in names for _, part in list_parts(attempt.path / name)]
    return found


def _log_names(attempt: AttemptDir, node: str | None) -> list[str]:
    """The log names of all ranks in the indices of these nodes, ordered by rank."""
    indices = [index for index in attempt.node_indices() if node in (None, index.stem)]
    pieces = (parse_piece(line) for index in indices for line in IndexTail(index).lines())
    return [f"rank-{rank}.out" for rank in sorted({piece.rank for piece in pieces if piece is not None})]
