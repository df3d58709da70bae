"""Where an agent stands: on which host, for which job, and where what it has to tell goes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from echelon.job import Job
from echelon.launchers import Scope, scope_of
from echelon.node.crew import Crew
from echelon.node.launched import LaunchedCrew
from echelon.node.messages import Hello
from echelon.node.node_dir import NodeDir
from echelon.node.sinks import Sinks
from echelon.run_dir import AttemptDir


@dataclass(frozen=True, kw_only=True)
class Post:
    job: Job
    node: int
    host: str
    node_dir: NodeDir
    attempt: AttemptDir
    environ: dict[str, str]
    run_path: Path
    """The folder that has the job as this node's ranks are to run it."""
    shown_run_path: Path
    """What ranks are told."""
    sinks: Sinks

    def hello(self, address: str) -> Hello:
        folder = str(self.node_dir.path)
        return Hello(node=self.node, host=self.host, address=address, pid=os.getpid(), node_dir=folder)

    def crew(self) -> Crew:
        kind = Crew if scope_of(self.job) is Scope.RANK else LaunchedCrew
        return kind(
            job=self.job, run_path=self.run_path, shown_run_path=self.shown_run_path, attempt=self.attempt,
            host=self.host, node_dir=self.node_dir, environ=self.environ, sinks=self.sinks,
        )  # fmt: skip
