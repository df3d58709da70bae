"""The ranks of one node if a launcher starts them. Each rank has a worker, which registers with the agent."""

from __future__ import annotations

import os
import sys
import time

from echelon.agent import cold_rank
from echelon.agent.context import AgentContext
from echelon.agent.deaths import NodeWatch
from echelon.agent.environ import added_variables
from echelon.agent.rank_environ import place_ranks
from echelon.agent.ranks import RankSet
from echelon.agent.registration import Registration, ReservedPlace, WorkerRejected
from echelon.agent.rendezvous import AGENT_STORE
from echelon.agent.worker import NODE_FOLDERS, pack_folders
from echelon.backends import backend, mpi_remote_shell
from echelon.backends.batch import step_variables_to_remove
from echelon.diagnosis.kills import signal_name
from echelon.environments.node_script import wrap_command
from echelon.environments.pyxis import REMOVAL_SECONDS, container_flags, is_removed_after_use, runtime_environ
from echelon.job import Job
from echelon.launchers import LaunchContext, Scope, launcher_scope, load_launcher
from echelon.launchers.accelerate import read_configuration
from echelon.placement import Placement, RankPlace
from echelon.wire.fds import KillLeftovers, RankEnded, Report, RunLauncher, RunRank, Signal, Workers
from echelon.wire.messages import Start
from echelon.wire.output import LauncherOutput
from echelon.wire.reports import FatalNodeProblem, LauncherFailed, Started

RELEASE_SECONDS = 3.0
KILL_SECONDS = 2.0
LAUNCHER_HINT = "echelon logs {run} shows its output; --launcher ranks starts the ranks without it"


def create_rank_set(context: AgentContext) -> RankSet:
    """The ranks of this node, and the starter, which begins to import torch."""
    return RankSet(context) if launcher_scope(context.job) is Scope.RANK else LaunchedRankSet(context)


class LaunchedRankSet(RankSet):
    """The starter only executes the launcher. Signals and exit codes of ranks pass through the registration socket."""

    def __init__(self, context: AgentContext) -> None:
        super().__init__(context)
        self._registration = Registration(self._node_dir.path)
        self._rehearses = backend(self._job.scheduler).rehearses_nodes
        self._launcher_output: LauncherOutput | None = None
        self._generation = 0
        self._join_deadline = float("inf")
        self._has_registered = False
        """Whether any rank has registered, in any generation: then the launcher is able to start ranks."""
        self._released_at: float | None = None
        self._known_workers: list[tuple[int, int]] = []
        """The workers as last sent to the starter: pid and start time of each."""
        self._remote_shell = mpi_remote_shell.write_remote_shell(self._job, self._environ, self._node_dir.path)
        """Set if mpirun starts its daemons as PBS tasks, which do not have the job's variables."""
        if launcher_scope(self._job) is Scope.JOB and is_removed_after_use(self._job):
            self.removal_seconds = REMOVAL_SECONDS

    # Starting

    def start(self, start: Start) -> None:
        """Raises OSError and EnvironmentProblem."""
        placement = start.placement
        self._generation = placement.generation
        self._released_at = None
        self._join_deadline = time.monotonic() + self._job.policies.join_timeout.total_seconds()
        ranks = place_ranks(self._job, start, self._environ, self._node_dir.path)
        self._registration.open(placement.generation, {rank.local_rank: self._reserve_place(rank) for rank in ranks})
        if launcher_scope(self._job) is Scope.NODE or placement.node_rank == 0:
            self._launch(start)

    def _reserve_place(self, place: RankPlace) -> ReservedPlace:
        placement, local_rank = place.placement, place.local_rank
        rank, output = placement.rank(local_rank), self._add_member(placement, local_rank)
        variables = self._rank_variables(placement, local_rank)
        node = self._environ if self._remote_shell else added_variables(self._environ)
        defaults = {**self._missing_variables(self.network), **node, AGENT_STORE: variables.pop(AGENT_STORE)}
        user_variables = {
            name: self._environ[name] for name in (*self._job.env, *self._job.secret_env) if name in self._environ
        }
        order = RunRank(
            argv=cold_rank.rank_argv(self._job, rank, self._node_dir),
            cwd=self._job.inner_cwd,
            umask=self.umask,
            env={**user_variables, **self._own_gpus(), **variables},
            defaults=defaults,
            place=place,
        )
        return ReservedPlace(
            rank=rank, order=order, output=output, expected=expected_check_in(self._job, placement, local_rank)
        )

    def _own_gpus(self) -> dict[str, str]:
        """The GPUs of a rehearsed node. One launcher for all rehearsed nodes can pass only one list of GPUs."""
        name = "CUDA_VISIBLE_DEVICES"
        return {name: self._environ[name]} if self._rehearses and name in self._environ else {}

    def _launch(self, start: Start) -> None:
        placement, starts_all_nodes = start.placement, launcher_scope(self._job) is Scope.JOB
        mpi_remote_shell.check_remote_shell(self._job, self._environ, start.hosts, self._remote_shell)
        variables = {
            "ECHELON_GENERATION": str(placement.generation),
            "ECHELON_NODE_DIR": str(self._node_dir.path),
            **({NODE_FOLDERS: pack_folders(start.folders)} if starts_all_nodes else {}),
        }
        worker = [self._job.python, "-I", sys.argv[0], "worker", self._job.launcher]
        worker = wrap_command(self._job, self._run_path, worker) if starts_all_nodes else worker
        removed = step_variables_to_remove(self._environ) if starts_all_nodes else []
        environ = {**self._environ, **variables}
        enroot_environ = runtime_environ(self._job, environ) if starts_all_nodes else {}
        command = load_launcher(self._job.launcher).command(self._job, self._launch_context(start), worker, environ)
        read_fd, write_fd = os.pipe()
        self._launcher_output = LauncherOutput(read_fd, self._job.launcher, self.node_log)
        order = RunLauncher(
            argv=tuple(command.argv),
            env={**variables, **enroot_environ, **command.env},
            removed=tuple(removed),
            launcher_seconds=RELEASE_SECONDS + self.removal_seconds if starts_all_nodes else 0.0,
        )
        self.starter.order(order, write_fd)
        os.close(write_fd)

    def _launch_context(self, start: Start) -> LaunchContext:
        placement = start.placement
        return LaunchContext(
            node_rank=str(placement.node_rank),
            is_first=str(int(placement.node_rank == 0)),
            nodes=placement.nodes,
            procs_per_node=placement.procs_per_node,
            main_address=placement.main_address,
            main_port=str(placement.main_port),
            own_address=self.address,
            launcher_port=str(placement.launcher_port),
            hosts=start.hosts,
            rehearses_nodes=self._rehearses,
            folder=str(self._node_dir.path),
            is_root=os.geteuid() == 0,
            remote_shell=self._remote_shell,
            container=container_flags(self._job, self._run_path, self._environ),
            config=read_configuration(self._job, self._environ) if self._job.launcher == "accelerate" else "",
        )

    # Reports

    def report_fds(self) -> list[int]:
        output = [] if self._launcher_output is None or self._launcher_output.ended else [self._launcher_output.fd]
        return [*self._registration.fds(), *output]

    def receive_worker_reports(self, readable: list[int]) -> list[Report]:
        if self._launcher_output is not None and self._launcher_output.fd in readable:
            self._launcher_output.drain()
        reports = [self._worker_report(report) for report in self._registration.receive(readable)]
        self._report_workers()
        return [*reports, *self._missing_ranks(time.monotonic())]

    def record_start(self, rank: int, pid: int) -> None:
        """Also begins to watch the node. A worker is in the cgroup of its rank, which the launcher may have created."""
        super().record_start(rank, pid)
        worker = self._registration.worker_pid(rank)
        self.members[rank].watch = NodeWatch(worker) if worker is not None else None

    def _report_workers(self) -> None:
        """Sends the workers to the starter, which stops them when this process is stopped."""
        workers = self._registration.workers()
        if workers != self._known_workers:
            self._known_workers = workers
            self.starter.order(Workers(workers=tuple(workers)))

    def _worker_report(self, report: Started | RankEnded | WorkerRejected) -> Report:
        if isinstance(report, WorkerRejected):
            what = f"{self._job.launcher} assigned other ranks than echelon expected"
            return FatalNodeProblem(what=what, why=report.why, hint=LAUNCHER_HINT)
        self._has_registered = True
        return report

    def _unregistered_ranks(self) -> list[int]:
        return [member.rank for member in self.living_members() if member.pid is None]

    def _missing_ranks(self, now: float) -> list[LauncherFailed]:
        """Returns a failure once, if ranks are missing when the join timeout has passed."""
        if now < self._join_deadline:
            return []
        self._join_deadline = float("inf")
        if not self._unregistered_ranks() or self._released_at is not None:
            return []
        seconds = self._job.policies.join_timeout.total_seconds()
        ranks = ", ".join(map(str, self._unregistered_ranks()))
        return [
            self._launcher_failure(
                f"{self._job.launcher} did not start rank {ranks} on {self._host} within {seconds:g} s"
            )
        ]

    def _launcher_failure(self, sentence: str) -> LauncherFailed:
        return LauncherFailed(generation=self._generation, sentence=sentence)

    def handle_launcher_exit(self, code: int) -> list[Report]:
        """Handles the exit of the launcher. It must outlive its ranks, because workers stay until they are released: an
        earlier exit is a failure."""
        received = (
            self._registration.receive(self._registration.wait_readable(0.0)) if self._released_at is None else []
        )
        reports: list[Report] = [report for report in received if not isinstance(report, WorkerRejected)]
        if self._launcher_output is not None:
            self._launcher_output.drain()
        if self._released_at is not None or not self.living_members():
            return reports
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        last_line = self._launcher_output.last_meaningful_line() if self._launcher_output is not None else ""
        if not self._has_registered:
            what = f"{self._job.launcher} cannot start the ranks"
            return [FatalNodeProblem(what=what, why=last_line or f"it {how}", hint=LAUNCHER_HINT)]
        output = f": {last_line}" if last_line and code > 0 else ""
        return [*reports, self._launcher_failure(f"{self._job.launcher} on {self._host} {how}{output}")]

    # Signals and stopping

    def _order_signal(self, order: Signal) -> None:
        self._registration.signal(order)

    def drop_unregistered(self) -> None:
        self._registration.discard_places()
        for rank in self._unregistered_ranks():
            self.members[rank].exited = True

    def workers_are_gone(self, now: float) -> bool:
        if self._released_at is None:
            self._released_at = now
            self._registration.release_workers()
        if not self._registration.is_empty and now > self._released_at + RELEASE_SECONDS:
            self._registration.kill()
        return self._registration.is_empty or now > self._released_at + RELEASE_SECONDS + KILL_SECONDS

    def kill_leftovers(self, generation: int, launcher_seconds: float) -> None:
        seconds = launcher_seconds if launcher_scope(self._job) is Scope.JOB else 0.0
        self.starter.order(KillLeftovers(generation=generation, launcher_seconds=seconds))

    def replace_starter(self) -> list[int]:
        self._registration.disconnect_workers()
        self._known_workers = []
        return super().replace_starter()

    def clear(self) -> None:
        super().clear()
        self._registration.discard_places()
        if self._launcher_output is not None:
            self._launcher_output.close()
            self._launcher_output = None

    def close(self, wait_seconds: float) -> None:
        while not self.workers_are_gone(time.monotonic()):
            self._registration.receive(self._registration.wait_readable(0.02))
        self._registration.close()
        super().close(wait_seconds + self.removal_seconds)


def expected_check_in(job: Job, placement: Placement, local_rank: int) -> dict[str, int]:
    """The CheckIn fields that must match the placement. Pure.

    With the c10d rendezvous, torchrun assigns the node ranks itself, so the rank is not compared.
    """
    size = {"world_size": placement.world_size}
    return size if job.launching.rdzv == "c10d" else {"rank": placement.rank(local_rank), **size}
