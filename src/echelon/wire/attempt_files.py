"""Writes the files of an attempt: into the run directory if the node sees it, otherwise over the channel."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from echelon.attempt_dir import EVIDENCE, AttemptDir
from echelon.errors import EchelonError
from echelon.log_files import NodeIndex, RankLogFile
from echelon.run_dir import RunDir
from echelon.wire.channel import Channel
from echelon.wire.messages import FilePiece, to_wire
from echelon.wire.output import Index, Log, LogFile

BACKLOG_BYTES = 1 << 20
"""With more unsent bytes than this, writes of ranks block, as on a slow disk."""
PIECE_BYTES = 1 << 18
SENT_NAMES = re.compile(
    rf"(?!\.)[^/\0]+\.(out|env|index)|{EVIDENCE}/generation-\d+/rank-\d+\.(stacks|json|flight\.json)"
)


class Sinks(Protocol):
    def log(self, path: Path) -> Log:
        """Opens a file for appending."""

    def index(self, path: Path) -> Index:
        """Opens the index of a node, which opens the logs of its ranks."""

    def write_file(self, path: Path, data: bytes) -> None:
        """Writes a whole file."""


class RunDirSinks:
    def __init__(self, max_bytes: int = 0) -> None:
        """Keeps at most `max_bytes` of each rank's log and of each index; 0 keeps all."""
        self._max_bytes = max_bytes

    def log(self, path: Path) -> Log:
        _make_evidence_folder(path)
        return LogFile(path)

    def index(self, path: Path) -> Index:
        return NodeIndex(path, self._max_bytes)

    def write_file(self, path: Path, data: bytes) -> None:
        _make_evidence_folder(path)
        RunDir(path.parent).write(path, data)


class ChannelSinks:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def log(self, path: Path) -> Log:
        return ChannelLog(self._channel, _sent_name(path))

    def index(self, path: Path) -> Index:
        return ChannelIndex(self._channel, path.name)

    def write_file(self, path: Path, data: bytes) -> None:
        self._channel.send(to_wire(_file_piece(_sent_name(path), data, whole=True)))


class ChannelLog:
    problem: OSError | None = None  # the supervisor handles errors of its disk

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self.name = name

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            self._send(data[start : start + PIECE_BYTES])

    def _send(self, data: bytes) -> None:
        self._channel.send(to_wire(_file_piece(self.name, data)))

    def close(self) -> None:
        pass


class ChannelIndex(ChannelLog):
    def rank_log(self, path: Path, *, width: int) -> ChannelRankLog:
        return ChannelRankLog(self._channel, path.name, index=self.name, width=width)

    def seconds_until_due(self) -> float:
        return math.inf

    def flush_if_due(self) -> None:
        """Does nothing: pieces are sent at once, and the supervisor merges them."""


class ChannelRankLog(ChannelLog):
    """Sends the output of a rank. The supervisor writes the index: it knows the offset of each piece in the file."""

    def __init__(self, channel: Channel, name: str, *, index: str, width: int) -> None:
        super().__init__(channel, name)
        self._index, self._width = index, width

    def _send(self, data: bytes) -> None:
        piece = replace(_file_piece(self.name, data), index=self._index, width=self._width)
        self._channel.send(to_wire(piece))

    def flush(self) -> None:
        """Does nothing: pieces are sent at once."""

    def end(self) -> None:
        self._send(b"")


def _make_evidence_folder(path: Path) -> None:
    if path.parent.parent.name == EVIDENCE:
        path.parent.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)


def _sent_name(path: Path) -> str:
    """The path in the attempt's folder."""
    return "/".join(path.parts[-3:]) if path.parent.parent.name == EVIDENCE else path.name


def _file_piece(name: str, data: bytes, *, whole: bool = False) -> FilePiece:
    return FilePiece(file=name, data=base64.b64encode(data).decode(), whole=whole)


class ReceivedFiles:
    """Writes the files that agents send over a channel into the attempt's folder. Used by the supervisor.

    Closes each file after each piece: a run on many hosts has more logs than a process may have open files.
    """

    def __init__(self, attempt: AttemptDir, max_bytes: int = 0) -> None:
        self._attempt = attempt
        self._max_bytes = max_bytes
        self._failure_reported = False
        self._indices: dict[str, NodeIndex] = {}
        self._logs: dict[str, RankLogFile] = {}

    def write_file(self, piece: FilePiece) -> str | None:
        """Writes one piece. Returns an error message for the first failure, and None otherwise."""
        try:
            self._write(piece)
        except (OSError, ValueError, EchelonError) as error:
            reported, self._failure_reported = self._failure_reported, True
            return None if reported else f"output was lost: {error}"
        return None

    def flush_if_due(self) -> None:
        for index in self._indices.values():
            index.flush_if_due()
            index.close_until_next_write()

    def flush(self) -> None:
        for index in self._indices.values():
            index.close()

    def _write(self, piece: FilePiece) -> None:
        for name in (piece.file, *filter(None, (piece.index,))):
            if not SENT_NAMES.fullmatch(name):
                raise ValueError(f"not a file of an attempt: {name!r}")
        path, data = self._attempt.path / piece.file, base64.b64decode(piece.data)
        _make_evidence_folder(path)
        if piece.whole:
            RunDir(self._attempt.path).write(path, data)
        elif piece.index:
            self._append_output(data, piece)
        elif path.suffix == ".index":
            self._append_text(data, self._index(piece.file))
        else:
            self._append(path, data)

    def _append(self, path: Path, data: bytes) -> None:
        log = LogFile(path)
        log.write(data)
        log.close()
        if log.problem is not None:
            raise log.problem

    def _append_text(self, data: bytes, index: NodeIndex) -> None:
        index.write(data)
        index.close_until_next_write()
        if index.problem is not None:
            raise index.problem

    def _append_output(self, data: bytes, piece: FilePiece) -> None:
        index = self._index(piece.index)
        log = self._rank_log(piece, index)
        if data:
            log.write(data)
        else:
            log.end()
            del self._logs[piece.file]  # the rank may continue on another host
        log.close()
        index.close_until_next_write()
        problem = log.problem or index.problem
        if problem is not None:
            raise problem

    def _index(self, name: str) -> NodeIndex:
        if name not in self._indices:
            self._indices[name] = NodeIndex(self._attempt.path / name, self._max_bytes)
        return self._indices[name]

    def _rank_log(self, piece: FilePiece, index: NodeIndex) -> RankLogFile:
        log = self._logs.get(piece.file)
        if log is None or log.index is not index:
            log = index.rank_log(self._attempt.path / piece.file, width=piece.width)
            self._logs[piece.file] = log
        return log
