"""Runs external programs without a shell, with a timeout and bounded output."""

from __future__ import annotations

import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_OUT_BYTES = 64 << 20
MAX_ERR_BYTES = 64 << 10
PIECE_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    code: int
    out: str
    """The first 64 MiB of standard output."""
    err: str
    """The last 64 KiB of standard error: programs print the cause at the end."""


def run_program(argv: Sequence[str], environ: Mapping[str, str], seconds: float) -> ProcessResult:
    """Raises OSError if the program cannot start. Kills it and raises subprocess.TimeoutExpired after `seconds`."""
    deadline = time.monotonic() + seconds
    with subprocess.Popen(
        list(argv), env=dict(environ), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, err = bytearray(), bytearray()
        try:
            _collect(process, out, err, deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise subprocess.TimeoutExpired(list(argv), seconds, bytes(out), bytes(err)) from late
        finally:
            process.kill()
    return ProcessResult(code=process.returncode, out=_decode_text(out), err=_decode_text(err))


def _collect(process: subprocess.Popen[bytes], out: bytearray, err: bytearray, deadline: float) -> None:
    """Reads both streams to their end and keeps a bounded part of each. Raises subprocess.TimeoutExpired."""
    with selectors.DefaultSelector() as selector:
        for stream in filter(None, (process.stdout, process.stderr)):
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired(process.args, 0)
            for key, _ in selector.select(left):
                piece = key.fileobj.read1(PIECE_BYTES)  # type: ignore[union-attr]
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    out += piece[: MAX_OUT_BYTES - len(out)]
                else:
                    err += piece
                    del err[: max(0, len(err) - MAX_ERR_BYTES)]


def _decode_text(data: bytearray) -> str:
    return data.decode(errors="replace")
