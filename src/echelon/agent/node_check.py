"""The preflight check of this node: a process that runs the doctor's checks. The agent passes its output on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

from echelon.agent.context import AgentContext
from echelon.codec import encode
from echelon.doctor.job import preflight_plan
from echelon.doctor.judge import parse_line
from echelon.doctor.model import Plan
from echelon.launchers import Scope, launcher_scope
from echelon.placement import STORE_KEY
from echelon.wire.messages import CheckNode, MeetingOpened, NodeChecked

MOST_BYTES = 8 << 20


class NodeCheck:
    """Reads without blocking. `reports` yields messages for the supervisor."""

    def __init__(self, check: CheckNode, context: AgentContext) -> None:
        place = {"rank": check.rank, "size": check.size, "address": check.address, "port": check.port}
        place["run_id"] = context.shown_run_path.name
        argv = [sys.executable, sys.argv[0], "check", json.dumps(encode(node_plan(context)))]
        self._process = subprocess.Popen(
            [*argv, json.dumps(place), str(os.getpid())],
            env={**context.environ, STORE_KEY: check.key},
            cwd=context.job.inner_cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        self._output = b""
        self._is_open = False
        self.is_done = False
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def reports(self) -> Iterator[MeetingOpened | NodeChecked]:
        ended = self._read()
        if not self._is_open and (port := self._port()) is not None:
            self._is_open = True
            yield MeetingOpened(port=port)
        if ended:
            self._process.kill()
            self._process.wait()
            self.is_done = True
            yield NodeChecked(output=self._output.decode(errors="replace"))

    def _read(self) -> bool:
        """Reads what is there. True at the end of the output."""
        stream = self._process.stdout
        while stream is not None:
            try:
                data = os.read(stream.fileno(), 1 << 16)
            except BlockingIOError:
                return False
            if not data or len(self._output) > MOST_BYTES:
                stream.close()
                return True
            self._output += data
        return True

    def _port(self) -> int | None:
        lines = (parse_line(line) for line in self._output.decode(errors="replace").splitlines())
        found = (line.get("port") for line in lines if line.get("doctor") == "listening")
        return next((port for port in found if isinstance(port, int)), None)


def node_plan(context: AgentContext) -> Plan:
    """The plan of the run, with the folders of this node. Outside of a container, torch is not there."""
    plan = preflight_plan(context.job)
    folders = (str(context.run_path.parent),) if context.run_path == context.shown_run_path else ()
    is_outside = context.job.is_enclosed and launcher_scope(context.job) is Scope.JOB
    return replace(plan, folders=folders, with_torch=not is_outside)
