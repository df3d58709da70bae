"""RankSet: the ranks of one node. Orders the starter to fork and signal them, and reads their output."""

from __future__ import annotations

import os
import signal
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path

from echelon.agent.context import AgentContext
from echelon.agent.deaths import NodeWatch, collect_death, needs_evidence
from echelon.agent.rank_environ import place_ranks, rank_changes
from echelon.agent.rank_poll import RankPoll
from echelon.agent.starter_process import StarterProcess
from echelon.agent.worker_server import RECORDER_ENVIRON
from echelon.diagnosis.death_evidence import Parent
from echelon.placement import Placement
from echelon.system import processes
from echelon.wire import fds
from echelon.wire.messages import Exit, Sample, Start
from echelon.wire.output import RankOutput


@dataclass
class RankProcess:
    """One rank: the pipe with its output, and its pid after the starter has forked it."""

    rank: int
    output: RankOutput
    pid: int | None = None
    exited: bool = False
    cpu_seconds: float = 0.0
    watch: NodeWatch | None = None
    """Counters of the node at the start of the rank, to explain its death."""


class RankSet:
    """Owns the starter process (starter.py). Only the starter forks, signals and reaps the ranks."""

    removal_seconds = 0.0
    """How long a launcher may run after its ranks have ended, to remove their containers."""

    def __init__(self, context: AgentContext) -> None:
        self._job = context.job
        self._run_path = context.run_path
        self._shown_run_path = context.shown_run_path
        self._attempt = context.attempt
        self._host = context.host
        self._node_dir = context.node_dir
        self._environ = context.environ
        self.node_log = context.sinks.index(context.attempt.node_index(context.host))
        self.members: dict[int, RankProcess] = {}
        self.network: dict[str, str] = {}
        """Network variables for ranks whose environ does not set them."""
        self.address = ""
        """The address of this node for the rendezvous."""
        self.umask = os.umask(0o077)
        self.starter = StarterProcess(context)
        self._poll = RankPoll(context.node_dir)

    def start(self, start: Start) -> None:
        placement = start.placement
        for place in place_ranks(self._job, start, self._environ, self._node_dir.path):
            local_rank, output = place.local_rank, self._add_member(placement, place.local_rank)
            env = {**self._missing_variables(self.network), **self._rank_variables(placement, local_rank)}
            changes = rank_changes(place, self._environ)
            order = fds.StartRank(
                generation=placement.generation, rank=place.rank, umask=self.umask, env=env, changes=changes
            )
            self.starter.order(order, output)
            os.close(output)
        watch = NodeWatch(self.starter.pid)  # after the orders: the starter forks the ranks meanwhile
        for member in self.members.values():
            member.watch = watch

    def _add_member(self, placement: Placement, local_rank: int) -> int:
        """Adds a member. Returns the write end of the pipe for its output."""
        rank, width = placement.rank(local_rank), len(str(placement.world_size - 1))
        self._node_dir.prepare(rank)
        read_fd, write_fd = os.pipe()
        log = self.node_log.rank_log(self._attempt.rank_log(rank), width=width)
        self.members[rank] = RankProcess(rank, RankOutput(read_fd, log))
        return write_fd

    def _missing_variables(self, variables: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in variables.items() if name not in self._environ}

    def _rank_variables(self, placement: Placement, local_rank: int) -> dict[str, str]:
        rank = placement.rank(local_rank)
        return {
            **placement.variables(local_rank),
            "TORCHELASTIC_ERROR_FILE": str(self._node_dir.error(rank)),
            "ECHELON_NODE_DIR": str(self._node_dir.path),
            "ECHELON_RUN_DIR": str(self._shown_run_path),
            **self._missing_variables(RECORDER_ENVIRON),
        }

    def open_store(self, generation: int, address: str, port: int, listener: int) -> None:
        self.starter.order(fds.OpenStore(generation=generation, address=address, port=port), listener)

    def cancel_start(self) -> None:
        """Drops the queued orders and the members. Call only if no rank has started."""
        self.starter.discard_orders()
        self.clear()

    # Living members

    def living_members(self) -> list[RankProcess]:
        return [member for member in self.members.values() if not member.exited]

    def record_start(self, rank: int, pid: int) -> None:
        self.members[rank].pid = pid

    def record_exit(self, ended: fds.RankEnded, *, is_stopping: bool, dead_parent: Parent | None = None) -> Exit:
        """Reads the remaining output of a rank that has exited, and returns how it ended."""
        member = self.members[ended.rank]
        member.exited = True
        member.output.drain_available()
        step, committed = self._node_dir.read_progress(ended.rank)
        restored, restored_name = self._node_dir.read_restored(ended.rank)
        exit = Exit(
            rank=ended.rank,
            host=self._host,
            code=ended.code,
            time=ended.time,
            lines=member.output.lines,
            step=step,
            committed=committed,
            restored=restored,
            restored_name=restored_name,
            error=self._node_dir.read_error(ended.rank) if ended.code != 0 else None,
        )
        return (
            self._with_evidence(exit, ended.peak, dead_parent)
            if needs_evidence(exit, is_stopping=is_stopping)
            else exit
        )

    def _with_evidence(self, exit: Exit, peak: int | None, dead_parent: Parent | None) -> Exit:
        member = self.members[exit.rank]
        evidence = collect_death(
            exit,
            output=member.output.last_lines(),
            peak=peak,
            watch=member.watch,
            node_dir=self._node_dir,
            cwd=Path(self._job.inner_cwd),
            dead_parent=dead_parent,
        )
        return replace(exit, evidence=evidence)

    def look_at_node(self) -> None:
        """Records memory use, which the kernel does not keep. Call it about once per second."""
        for watch in {member.watch for member in self.living_members()}:
            if watch is not None:
                watch.look()

    def samples(self, *, with_cpu: bool) -> tuple[Sample, ...]:
        """The progress of each living rank. `with_cpu` updates the CPU time, which visits every thread."""
        members = [(member, member.pid) for member in self.living_members() if member.pid is not None]
        for member, pid in members if with_cpu else ():
            member.cpu_seconds = processes.cpu_seconds(pid)
        samples = tuple(self._sample(member, pid) for member, pid in members)
        self._poll.watch({one.rank: (pid, one.step, one.lines) for one, (_, pid) in zip(samples, members, strict=True)})
        return samples

    def _sample(self, member: RankProcess, pid: int) -> Sample:
        step, committed = self._node_dir.read_progress(member.rank)
        look = self._poll.take(member.rank)
        return Sample(
            rank=member.rank,
            lines=member.output.lines,
            cpu_seconds=member.cpu_seconds,
            stopped=processes.is_stopped(pid),
            step=step,
            committed=committed,
            waits_in_collective=look.waits_in_collective,
            collective_seconds=look.collective_seconds,
            waits_on_disk=look.waits_on_disk,
            group_timeout=look.group_timeout,
            pace=look.pace,
        )

    # Signals

    def signal_all(self, signum: int) -> None:
        self._signal([member.rank for member in self.living_members()], signum, group=True)

    def terminate_ranks(self) -> None:
        """Sends SIGTERM. Ranks that ignore SIGTERM get SIGKILL at once."""
        ignoring = [m.rank for m in self.living_members() if self._node_dir.ignores_term(m.rank).exists()]
        self._signal(ignoring, signal.SIGKILL, group=True)
        self._signal([m.rank for m in self.living_members() if m.rank not in ignoring], signal.SIGTERM, group=True)

    def _signal(self, ranks: list[int], signum: int, *, group: bool) -> None:
        self._order_signal(fds.Signal(ranks=tuple(ranks), signum=signum, group=group))

    def _order_signal(self, order: fds.Signal) -> None:
        self.starter.order(order)

    def signal_ranks_with_handler(self, signum: int, skip: Container[int] = ()) -> list[int]:
        """Signals only ranks with a handler, because the signal would kill the others. Skips the pids in `skip`."""
        running = [(m.rank, m.pid) for m in self.living_members() if m.pid is not None and m.pid not in skip]
        ranks = [rank for rank, pid in running if processes.has_handler(pid, signum)]
        self._signal(ranks, signum, group=False)
        return ranks

    def continue_stopped_ranks(self) -> None:
        ranks = [m.rank for m in self.living_members() if m.pid is not None and processes.is_stopped(m.pid)]
        self._signal(ranks, signal.SIGCONT, group=False)

    # Reports of a launcher and its workers: none here, see LaunchedRankSet

    def report_fds(self) -> list[int]:
        return []

    def receive_worker_reports(self, readable: list[int]) -> list[fds.Report]:  # noqa: ARG002
        return []

    def handle_launcher_exit(self, code: int) -> list[fds.Report]:  # noqa: ARG002
        return []

    # Stopping

    def drop_unregistered(self) -> None:
        """Marks ranks that have not registered as exited. Has no effect here: only launched ranks register."""

    def workers_are_gone(self, now: float) -> bool:  # noqa: ARG002
        """Whether the workers of all exited ranks are gone. Always true here: only launched ranks have workers."""
        return True

    def kill_leftovers(self, generation: int, launcher_seconds: float) -> None:  # noqa: ARG002
        self.starter.order(fds.KillLeftovers(generation=generation, launcher_seconds=0.0))

    def replace_starter(self) -> list[int]:
        """Call after the starter has died. Starts a new one. Returns the ranks that died with the old one."""
        self.starter.replace()
        return [member.rank for member in self.living_members()]

    def drain_outputs(self) -> None:
        for member in self.members.values():
            member.output.drain_available()

    def clear(self) -> None:
        """Removes the members of the generation, after reading the rest of their output."""
        self.drain_outputs()
        for member in self.members.values():
            member.output.close()
        self.members.clear()

    def log_problem(self) -> OSError | None:
        """Why output was lost, or None if none was lost."""
        problems = (self.node_log.problem, *(member.output.problem for member in self.members.values()))
        return next(filter(None, problems), None)

    def log_line(self, text: str) -> None:
        self.node_log.write(f"|[echelon] {text}\n".encode())

    def close(self, wait_seconds: float) -> None:
        """Ends the starter and all its processes. Kills what is left after `wait_seconds`."""
        self._poll.close()
        self.starter.close(wait_seconds)
        self.clear()
