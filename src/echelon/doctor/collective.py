"""An all_reduce of all nodes (tier 4): the torch process of a node, and what the results mean."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelon.doctor.checks.software import SECONDS, parse_description, torch_command
from echelon.doctor.model import Finding, Node, Result, Severity, mapping, number, text
from echelon.system import processes
from echelon.text import format_size
from echelon.untrusted import parse_json

NAME = "all_reduce"
ERROR_BYTES = 4096


class TorchProcess:
    """The process that imports torch once, for the versions and for the all_reduce."""

    def __init__(self, address: str = "") -> None:
        parent = os.getpid()
        self.listener: socket.socket | None = None
        if address:
            self.listener = socket.create_server((address, 0), backlog=4096)
            self.listener.set_inheritable(True)
        self._process = subprocess.Popen(
            torch_command(sys.executable),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=() if self.listener is None else (self.listener.fileno(),),
            preexec_fn=lambda: processes.die_with_parent(parent),
        )
        self._began = time.monotonic()
        self._out = b""
        self._err = b""

    def describe(self) -> Result:
        line = self._read_line(self._began + SECONDS)
        seconds = time.monotonic() - self._began
        if line is None:
            problem = f"no answer within {SECONDS:g} s"
            return Result(check="software", seconds=seconds, problem=problem, timed_out=True)
        return Result(
            check="software", seconds=seconds, facts=parse_description(line, self._err, self._process.poll() or 0)
        )

    def reduce(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Takes part in an all_reduce. A failure is a fact."""
        listener = {} if self.listener is None else {"listener": self.listener.fileno()}
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(json.dumps({**order, **listener}).encode() + b"\n")
                self._process.stdin.flush()
        except OSError as error:
            return {"problem": f"the torch process has ended: {error.strerror}"}
        line = self._read_line(time.monotonic() + float(order["seconds"]) + 10)
        if not line:
            return {"problem": "no answer in time" if line is None else self._last_error()}
        facts = parse_json(line)
        return facts if isinstance(facts, dict) else {}

    def _last_error(self) -> str:
        lines = self._err.decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "the torch process has ended"

    def _read_line(self, deadline: float) -> bytes | None:
        """The next line; empty at the end of the output; None after the deadline."""
        out, err = self._process.stdout, self._process.stderr
        if out is None or err is None:
            return b""
        sources = [out.fileno(), err.fileno()]
        while b"\n" not in self._out:
            readable, _, _ = select.select(sources, [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            if err.fileno() in readable:
                data = os.read(err.fileno(), 1 << 16)
                self._err = (self._err + data)[-ERROR_BYTES:]
                sources = sources if data else sources[:1]
            if out.fileno() in readable:
                data = os.read(out.fileno(), 1 << 16)
                self._out += data
                if not data:
                    return self._out
        line, _, self._out = self._out.partition(b"\n")
        return line

    def close(self) -> None:
        processes.send_signal(self._process.pid, signal.SIGKILL)


def judge_reduce(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Pure."""
    for node in nodes:
        facts = node.facts(NAME)
        problem = text(facts, "problem")
        if problem:
            yield _finding(
                node.name, "all_reduce failed", problem, "see the findings above; TORCH_DISTRIBUTED_DEBUG=INFO"
            )
        for size, measured in mapping(facts, "sizes").items():
            if isinstance(measured, dict) and measured.get("correct") is False:
                what = f"all_reduce of {format_size(int(size))} gives a wrong sum"
                yield _finding(
                    node.name, what, "memory, GPU or network damages data", "exclude the node, and report it"
                )


def _finding(node: str, what: str, why: str, fix: str) -> Finding:
    return Finding(severity=Severity.ERROR, check=NAME, node=node, what=what, why=why, fix=fix)


def reduce_seconds(nodes: Sequence[Node]) -> dict[int, list[float]]:
    """Seconds of each node, by size in bytes."""
    found: dict[int, list[float]] = {}
    for node in nodes:
        for size, measured in mapping(node.facts(NAME), "sizes").items():
            seconds = number(measured, "seconds") if isinstance(measured, dict) else None
            if seconds is not None and size.isdecimal():
                found.setdefault(int(size), []).append(seconds)
    return found
