"""One ssh connection to one host. It receives the host's report, sends the agent's files, and becomes its channel."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.backends.ssh.bootstrap import MARK
from echelon.codec import decode
from echelon.record import record
from echelon.untrusted import clean_for_terminal
from echelon.wire.attempt_files import BACKLOG_BYTES
from echelon.wire.channel import HEADER, Channel, ChannelClosed

PIECE_BYTES = 1 << 18
MOST_OUTPUT_BYTES = 1 << 16
MOST_STORED_BYTES = 4 << 20
EXIT_SECONDS = 0.5


@record
class HostReport:
    """The facts that a host reports."""

    version: tuple[int, ...]
    python: str
    torch: bool
    time: float
    shared: bool
    """Whether the host sees the run directory."""
    cwd: bool
    script: bool
    gpus: int
    address: str
    """The host's address at which ssh reached it."""


class Connection:
    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], asked: Mapping[str, Any], host: str) -> None:
        self.host = host
        self.report: HostReport | None = None
        self.requested_at = time.time()
        self.received_at = self.requested_at
        self._error_file = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the connection
        self._relayed = 0
        self._first_output = ""
        self._pieces: Iterator[bytes] | None = None
        self._owns_channel = True
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            self.process = subprocess.Popen(
                argv,
                env=dict(environ),
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=self._error_file,
                start_new_session=True,
            )
        except OSError:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.channel = Channel(ours_in, ours_out, prologue=MARK)
        self.channel.send_raw(_bootstrap_line() + _encode_frame(asked))

    def receive_report(self) -> None:
        """Reads the report if it has arrived. Raises ChannelClosed, also for an invalid report."""
        for wire in self.channel.receive():
            try:
                self.report = decode(HostReport, wire)
            except ValueError as error:
                raise ChannelClosed(str(error)) from error
            self.received_at = time.time()

    def prepare_to_send(self, files: Sequence[Path], wanted: Mapping[str, Any], brief: Mapping[str, Any]) -> None:
        """Queues the request, the files that the host lacks and the agent's brief. `continue_sending` sends them."""
        self._pieces = _pieces(wanted, files, brief)

    @property
    def is_prepared(self) -> bool:
        return self._pieces is not None

    def continue_sending(self) -> bool:
        """Sends without blocking. True after everything is sent."""
        for piece in self._pieces or ():
            self.channel.send_raw(piece)
            if self.channel.unsent_bytes > BACKLOG_BYTES:
                return False
        self.channel.flush()
        return self.channel.unsent_bytes == 0

    def release_channel(self) -> Channel:
        """The channel. The caller must close it."""
        self._owns_channel = False
        return self.channel

    def close_channel(self) -> None:
        if self._owns_channel:
            self._owns_channel = False
            self.channel.close()

    def exit_code(self) -> int | None:
        """The exit code of ssh. Waits EXIT_SECONDS; None if ssh still runs."""
        try:
            return self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def error_output(self) -> str:
        """The stderr of ssh and of the remote command."""
        return self._first_output or os.pread(self._error_file.fileno(), MOST_OUTPUT_BYTES, 0).decode(errors="replace")

    def relay_output(self) -> None:
        """Copies new stderr lines to the stderr of this process, with the host's name before each line."""
        new = os.pread(self._error_file.fileno(), MOST_OUTPUT_BYTES, self._relayed)
        self._relayed += len(new)
        for line in clean_for_terminal(new.decode(errors="replace")).splitlines():
            print(f"[{self.host}] {line}", file=sys.stderr, flush=True)
        if os.fstat(self._error_file.fileno()).st_size > MOST_STORED_BYTES:
            self._drop_output()

    def _drop_output(self) -> None:
        """Truncates the stored output, so that a host that writes without end does not fill the disk. ssh shares the
        file offset and continues at the start."""
        self._first_output = self.error_output()
        os.ftruncate(self._error_file.fileno(), 0)
        os.lseek(self._error_file.fileno(), 0, os.SEEK_SET)
        self._relayed = 0
        print(f"[{self.host}] (output of more than {MOST_STORED_BYTES} bytes was dropped)", file=sys.stderr, flush=True)


def _bootstrap_line() -> bytes:
    """The bootstrap as one line: a Python string literal."""
    source = pkgutil.get_data("echelon.backends.ssh", "bootstrap.py") or b""
    return repr(source.decode()).encode() + b"\n"


def _encode_frame(data: Mapping[str, Any]) -> bytes:
    payload = json.dumps(data).encode()
    return HEADER.pack(len(payload)) + payload


def _pieces(wanted: Mapping[str, Any], files: Sequence[Path], brief: Mapping[str, Any]) -> Iterator[bytes]:
    """Reads files while they are sent. There may be many hosts, and a snapshot may be large."""
    yield _encode_frame(wanted)
    for path in files:
        with path.open("rb") as file:
            yield HEADER.pack(os.fstat(file.fileno()).st_size)
            while piece := file.read(PIECE_BYTES):
                yield piece
    yield _encode_frame(brief)
