"""The output of ranks and launchers, from their pipes to the log files."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from pathlib import Path
from typing import Protocol

LONGEST_LINE_BYTES = 1 << 16
MAX_KEPT_LINES = 20
MAX_KEPT_BYTES = 1 << 14


class LineSplitter:
    """Splits bytes into whole lines. A carriage return also ends a line, so that progress bars appear at once."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        text = self._rest + data
        if b"\r" in text:
            held = text.endswith(b"\r")  # its newline may be in the next chunk
            text = text[:-1] if held else text
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + (b"\r" if held else b"")
        *lines, self._rest = text.split(b"\n")
        while len(self._rest) > LONGEST_LINE_BYTES:
            lines.append(self._rest[:LONGEST_LINE_BYTES])
            self._rest = self._rest[LONGEST_LINE_BYTES:]
        return lines

    def finish(self) -> list[bytes]:
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        return [rest] if rest else []


class Log(Protocol):
    @property
    def problem(self) -> OSError | None:
        """The error that lost part of the output, if any."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class RankLog(Log, Protocol):
    def flush(self) -> None:
        """Writes pending pieces to the index, so that readers see them."""

    def end(self) -> None:
        """Marks the end of the rank's output."""


class Index(Log, Protocol):
    """The order of the output of a node's ranks."""

    def rank_log(self, path: Path, *, width: int) -> RankLog: ...

    def seconds_until_due(self) -> float:
        """Seconds until flush_if_due has something to write; may be infinite."""

    def flush_if_due(self) -> None: ...


class LogFile:
    """Appends whole blocks. A full disk loses lines and does not stop the training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: OSError | None = None
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.problem = error

    def close(self) -> None:
        os.close(self._fd)


class LauncherOutput:
    """A launcher's own output: writes its lines with its name to the node's log, and keeps the last ones."""

    def __init__(self, read_fd: int, name: str, node_log: Log) -> None:
        os.set_blocking(read_fd, False)
        self.fd = read_fd
        self.ended = False
        self._tag = f"[{name}] ".encode()
        self._splitter = LineSplitter()
        self._node_log = node_log
        self._last: list[str] = []

    def drain(self) -> None:
        while not self.ended:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            self.ended = not data
            self._store_lines(self._splitter.feed(data) if data else self._splitter.finish())

    def _store_lines(self, lines: list[bytes]) -> None:
        self._node_log.write(b"".join(b"|" + self._tag + line + b"\n" for line in lines))
        self._last = [*self._last, *(line.decode(errors="replace") for line in lines)][-MAX_KEPT_LINES:]

    def last_meaningful_line(self) -> str:
        """The last line that is not empty or a separator: most programs print the cause there."""
        lines = [line.strip() for line in self._last if line.strip(" -=*#\t")]
        return lines[-1] if lines else ""

    def close(self) -> None:
        self.drain()
        self._store_lines(self._splitter.finish())
        os.close(self.fd)


class RankOutput:
    """One rank's pipe: copies its bytes unchanged to the rank's log, counts its lines and keeps the last ones."""

    def __init__(self, read_fd: int, log: RankLog) -> None:
        os.set_blocking(read_fd, False)
        self.fd = read_fd
        self.lines = 0
        self.ended = False
        self._log = log
        self._end = b""

    def drain(self, max_bytes: int = 1 << 20) -> bool:
        """Copies about `max_bytes`, so that one rank cannot starve the others. False at the end of the pipe."""
        while max_bytes > 0:
            try:
                data = os.read(self.fd, min(max_bytes, 1 << 16))
            except BlockingIOError:
                return True
            if not data:
                self.ended = True  # the rank closed it and may still run
                return False
            max_bytes -= len(data)
            self._log.write(data)
            self.lines += data.count(b"\n") + data.count(b"\r")
            self._end = (self._end + data)[-MAX_KEPT_BYTES:] if len(data) < MAX_KEPT_BYTES else data[-MAX_KEPT_BYTES:]
        return True

    def last_lines(self) -> tuple[str, ...]:
        """The last lines, at most 20. Drops the first one if it may be incomplete."""
        lines = self._end.decode(errors="replace").splitlines()
        is_cut = len(self._end) == MAX_KEPT_BYTES and len(lines) > 1
        return tuple(lines[1 if is_cut else 0 :][-MAX_KEPT_LINES:])

    def drain_available(self) -> None:
        """Copies only the bytes that are in the pipe now: a child that the rank left may never stop writing.

        Flushes the index: the run may end next.
        """
        waiting = array.array("i", [0])
        fcntl.ioctl(self.fd, termios.FIONREAD, waiting)
        if waiting[0]:
            self.drain(max_bytes=waiting[0])
        self._log.flush()

    @property
    def problem(self) -> OSError | None:
        return self._log.problem

    def close(self) -> None:
        self._log.end()
        self._log.close()
        os.close(self.fd)
