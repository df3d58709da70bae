"""The ranks of one node where somebody else starts them: a launcher is executed, and they check in at a desk."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from echelon.batch_facts import of_this_step
from echelon.environments.pyxis import container_flags
from echelon.job import Job
from echelon.launchers import Scope, Where, launcher_of, scope_of
from echelon.launchers.accelerate import configuration
from echelon.node import cold
from echelon.node.crew import Crew
from echelon.node.desk import Desk, Place
from echelon.node.environ import ours
from echelon.node.faults import signal_name
from echelon.node.inside import inside
from echelon.node.messages import Start
from echelon.node.output import LauncherOutput
from echelon.node.worker import DESKS, packed
from echelon.plan import Placement

LET_GO_SECONDS = 3.0
KILL_SECONDS = 2.0
HINT = "echelon logs {run} has all that it said; --launcher ranks does without it"
THE_STORE = "TORCHELASTIC_USE_AGENT_STORE"


class LaunchedCrew(Crew):
    """Its starter executes the launcher and nothing else; signals and endings go through the desk."""

    def __init__(self, **post: Any) -> None:
        super().__init__(**post)
        self._desk = Desk(self._node_dir.path)
        self._said: LauncherOutput | None = None
        self._absent_after = float("inf")
        self._seen = False
        """Whether any rank has ever come: then the launcher is able to start some."""
        self._let_go_at: float | None = None

    # Starting

    def start(self, start: Start) -> None:
        placement = start.placement
        self._let_go_at = None
        self._absent_after = time.monotonic() + self._job.policies.join_timeout.total_seconds()
        places = {n: self._place(placement, n) for n in range(placement.procs_per_node)}
        self._desk.open(placement.generation, places)
        if scope_of(self._job) is Scope.NODE or placement.node_rank == 0:
            self._launch(start)

    def _place(self, placement: Placement, local_rank: int) -> Place:
        rank, output = placement.rank(local_rank), self._enlist(placement, local_rank)
        variables = self._rank_variables(placement, local_rank)
        gaps = {**self._unless_set(self.network), **ours(self._environ), THE_STORE: variables.pop(THE_STORE)}
        asked = {name: self._environ[name] for name in (*self._job.env, *self._job.secret_env) if name in self._environ}
        order = {
            "is": "rank", "argv": cold.argv(self._job, rank, self._node_dir), "cwd": self._job.inner_cwd,
            "umask": self.umask, "env": {**asked, **self._own_gpus(), **variables}, "unless_set": gaps,
            "decided": decided(self._job, placement, local_rank),
        }  # fmt: skip
        return Place(rank=rank, order=order, output=output)

    def _own_gpus(self) -> dict[str, str]:
        """A launcher of all rehearsed nodes has but one list of GPUs to give."""
        name = "CUDA_VISIBLE_DEVICES"
        return {name: self._environ[name]} if self._job.scheduler == "local" and name in self._environ else {}

    def _launch(self, start: Start) -> None:
        placement, is_all = start.placement, scope_of(self._job) is Scope.JOB
        variables = {
            "ECHELON_GENERATION": str(placement.generation),
            "ECHELON_NODE_DIR": str(self._node_dir.path),
            **({DESKS: packed(start.folders)} if is_all else {}),
        }
        worker = [self._job.python, "-I", sys.argv[0], "worker", self._job.launcher]
        worker = inside(self._job, self._run_path, worker) if is_all else worker
        without = of_this_step(self._environ) if is_all else []
        environ = {**self._environ, **variables}
        command = launcher_of(self._job.launcher).command(self._job, self._where(start), worker, environ)
        read_fd, write_fd = os.pipe()
        self._said = LauncherOutput(read_fd, self._job.launcher, self._node_log)
        self._order(
            "launch", write_fd, argv=command.argv, env={**variables, **command.env}, without=without,
            patience=LET_GO_SECONDS if is_all else 0.0,
        )  # fmt: skip
        os.close(write_fd)

    def _where(self, start: Start) -> Where:
        placement = start.placement
        return Where(
            node_rank=str(placement.node_rank), is_first=str(int(placement.node_rank == 0)), nodes=placement.nodes,
            procs_per_node=placement.procs_per_node, main_address=placement.main_address,
            main_port=str(placement.main_port), own_address=self.address, launcher_port=str(placement.launcher_port),
            hosts=start.hosts, folder=str(self._node_dir.path), is_root=os.geteuid() == 0,
            container=container_flags(self._job, self._run_path, self._environ),
            config=configuration(self._job, self._environ) if self._job.launcher == "accelerate" else "",
        )  # fmt: skip

    # Listening

    def sources(self) -> list[int]:
        said = [] if self._said is None or self._said.ended else [self._said.fd]
        return [*self._desk.fds(), *said]

    def hear_others(self, readable: list[int]) -> list[dict[str, Any]]:
        if self._said is not None and self._said.fd in readable:
            self._said.drain()
        reports = [self._translated(report) for report in self._desk.hear(readable)]
        return reports + self._missing(time.monotonic())

    def _translated(self, report: dict[str, Any]) -> dict[str, Any]:
        if report["is"] == "refused":
            what = f"{self._job.launcher} numbers the ranks otherwise than was decided"
            return {"is": "trouble", "what": what, "why": report["why"], "hint": HINT}
        self._seen = True
        return report

    def _absent(self) -> list[int]:
        return [member.rank for member in self.living() if member.pid is None]

    def _missing(self, now: float) -> list[dict[str, Any]]:
        """Once, when the time is up in which all ranks had to come."""
        if now < self._absent_after:
            return []
        self._absent_after = float("inf")
        if not self._absent() or self._let_go_at is not None:
            return []
        seconds = self._job.policies.join_timeout.total_seconds()
        ranks = ", ".join(map(str, self._absent()))
        return [_failed(f"{self._job.launcher} did not start rank {ranks} on {self._host} within {seconds:g} s")]

    def launcher_left(self, code: int) -> list[dict[str, Any]]:
        """It has to outlive its ranks, which stay until they are let go."""
        reports = self._desk.hear(self._desk.readable(0.0)) if self._let_go_at is None else []
        if self._said is not None:
            self._said.drain()
        if self._let_go_at is not None or not self.living():
            return reports
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        said = self._said.gist() if self._said is not None else ""
        if not self._seen:
            what = f"{self._job.launcher} cannot start the ranks"
            return [{"is": "trouble", "what": what, "why": said or f"it {how}", "hint": HINT}]
        words = f": {said}" if said and code > 0 else ""
        return [*reports, _failed(f"{self._job.launcher} on {self._host} {how}{words}")]

    # Signals and endings

    def _send_signal(self, ranks: list[int], signum: int, *, group: bool) -> None:
        self._desk.signal(ranks, signum, group=group)

    def write_off_absent(self) -> None:
        self._desk.forget_places()
        for rank in self._absent():
            self.members[rank].exited = True

    def is_clear(self, now: float) -> bool:
        if self._let_go_at is None:
            self._let_go_at = now
            self._desk.let_go()
        if not self._desk.is_empty and now > self._let_go_at + LET_GO_SECONDS:
            self._desk.kill()
        return self._desk.is_empty or now > self._let_go_at + LET_GO_SECONDS + KILL_SECONDS

    def sweep(self, generation: int, patience: float) -> None:
        patience = patience if scope_of(self._job) is Scope.JOB else 0.0
        self._order("sweep", generation=generation, patience=patience)

    def replace_starter(self) -> list[int]:
        self._desk.hang_up()
        return super().replace_starter()

    def clear(self) -> None:
        super().clear()
        self._desk.forget_places()
        if self._said is not None:
            self._said.close()
            self._said = None

    def close(self, wait_seconds: float) -> None:
        while not self.is_clear(time.monotonic()):
            self._desk.hear(self._desk.readable(0.02))
        self._desk.close()
        super().close(wait_seconds)


def decided(job: Job, placement: Placement, local_rank: int) -> dict[str, int]:
    """What a launcher must have told a rank. Those of torchrun that agree among themselves number nodes as they like,
    and what they say is passed over. Pure."""
    size = {"world_size": placement.world_size}
    return size if job.launching.rdzv == "c10d" else {"rank": placement.rank(local_rank), **size}


def _failed(sentence: str) -> dict[str, Any]:
    return {"is": "failed", "sentence": sentence}
