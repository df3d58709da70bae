"""AgentContext: job, host, paths and log sinks of one agent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.attempt_dir import AttemptDir
from echelon.job import Job
from echelon.record import record
from echelon.wire.attempt_files import Sinks
from echelon.wire.messages import Hello
from echelon.wire.node_dir import NodeDir

if TYPE_CHECKING:
    from echelon.agent.starter_process import ImporterOffer


@record
class AgentContext:
    job: Job
    node: int
    host: str
    node_dir: NodeDir
    attempt: AttemptDir
    environ: dict[str, str]
    run_path: Path
    """The run directory that holds the job as this node's ranks run it."""
    shown_run_path: Path
    """The run directory in the variable ECHELON_RUN_DIR of the ranks."""
    sinks: Sinks
    importer: ImporterOffer | None = None
    """The importer that the supervisor started for all rehearsed nodes."""

    def hello(self, address: str) -> Hello:
        folder = str(self.node_dir.path)
        return Hello(node=self.node, host=self.host, address=address, pid=os.getpid(), node_dir=folder)
