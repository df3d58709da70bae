"""The agent's event loop: starts, watches and stops the ranks of its node."""

from __future__ import annotations

import select
import signal
import time
from typing import TYPE_CHECKING, Any

from echelon.agent.context import AgentContext
from echelon.agent.evidence_files import EvidenceCollection, FlightBudget
from echelon.agent.notices import NoticeSender
from echelon.agent.ranks import RankSet
from echelon.agent.rendezvous import bind_rendezvous_port
from echelon.agent.stopping import StopSequence
from echelon.backends import backend
from echelon.diagnosis.death_evidence import Parent
from echelon.errors import EnvironmentProblem
from echelon.system import network
from echelon.system.network import network_variables
from echelon.system.signals import open_signal_fd, read_signals
from echelon.system.suspension import CutOffDetector, PauseDetector
from echelon.wire.attempt_files import BACKLOG_BYTES
from echelon.wire.channel import Channel, ChannelClosed, poll_events
from echelon.wire.fds import LauncherEnded, LeftoversKilled, RankEnded, Ready, Report
from echelon.wire.messages import (
    AgentMessage,
    BindPort,
    CheckNode,
    CollectEvidence,
    EvidenceCollected,
    Exited,
    Heartbeat,
    NodeChecked,
    Notice,
    Ping,
    Preempted,
    Remark,
    Shutdown,
    Start,
    Stop,
    Stopped,
    from_wire,
    to_wire,
)
from echelon.wire.reports import FatalNodeProblem, LauncherFailed, Started, StoreDied

if TYPE_CHECKING:
    from echelon.agent.node_check import NodeCheck

HEARTBEAT_SECONDS = 0.5
CPU_SECONDS = 10.0


class Agent:
    def __init__(self, *, context: AgentContext, ranks: RankSet, channel: Channel, address: str) -> None:
        self._context = context
        self._job = context.job
        self._ranks = ranks
        self._channel = channel
        self._node_dir = context.node_dir
        self._address = ranks.address = address
        self._generation = 0
        self._stopping: StopSequence | None = None
        self._collection: EvidenceCollection | None = None
        self._check: NodeCheck | None = None
        self._flight_budget = FlightBudget(self._job.resources.nodes)
        self._notices = NoticeSender(ranks, context.node_dir)
        self._ports = network.ReservedPorts()
        self._cut_off = CutOffDetector(time.monotonic(), context.job.policies.heartbeat.total_seconds())
        self._log_problem_reported = False
        self._shut_down = False
        self._next_cpu = 0.0

    def send(self, message: AgentMessage) -> None:
        self._channel.send(to_wire(message))

    def choose_network(self) -> None:
        """Sets the network variables of gloo and NCCL if they would not find the network themselves, and logs them."""
        rehearses = backend(self._job.scheduler).rehearses_nodes
        chosen = {} if rehearses else network_variables(self._address, self._job.interface)
        if chosen:
            self._ranks.network = chosen
            self._ranks.log_line(", ".join(f"{name}={value}" for name, value in chosen.items()))

    def run(self) -> bool:
        """Runs until the supervisor sends Leave. Returns true if the connection closed or heartbeats stopped before."""
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # the notice arrives over the channel
        wake = open_signal_fd(signal.SIGTERM, signal.SIGINT, signal.SIGCONT)
        next_heartbeat = 0.0
        heartbeat = self._job.policies.heartbeat.total_seconds()
        pauses = PauseDetector(time.monotonic(), heartbeat)
        while not self._shut_down:
            readable = self._wait(wake, next_heartbeat)
            now = time.monotonic()
            lost = pauses.seconds_paused(now)
            if lost or wake in readable:  # a poll that was interrupted by SIGSTOP does not check its descriptors again
                self._handle_signals(wake)
            if lost:
                self._cut_off.extend_once(now)
            self._read_outputs(readable)
            for report in self._ranks.receive_worker_reports(readable):
                self._handle_report(report)
            if self._ranks.starter.link.fileno() in readable:
                self._read_starter()
            if self._channel.fileno() in readable and not self._read_supervisor():
                return True
            if self._cut_off.is_cut_off(now):
                return True  # the nodes that still reach the supervisor continue without this one
            if now >= next_heartbeat:
                next_heartbeat = now + min(HEARTBEAT_SECONDS, heartbeat / 5)
                self._send_heartbeat()
            self._advance(now)
            self._ranks.node_log.flush_if_due()
            self._ranks.starter.send_orders()
            self._channel.flush()
        return False

    def _handle_signals(self, wake: int) -> None:
        signums = read_signals(wake)
        if signal.SIGCONT in signums:
            self._cut_off.restart_timeouts(time.monotonic())  # the job was suspended, so missed heartbeats do not count
        if signal.SIGTERM in signums or signal.SIGINT in signums:
            self.send(Preempted())

    def _wait(self, wake: int, next_heartbeat: float) -> list[int]:
        outputs = (
            [] if self._is_channel_full() else [m.output.fd for m in self._ranks.living_members() if not m.output.ended]
        )
        busy = (
            self._check is not None
            or self._collection is not None
            or self._stopping is not None
            or self._ranks.starter.has_orders
        )
        timeout = 0.02 if busy else max(0.0, next_heartbeat - time.monotonic())
        timeout = min(timeout, self._ranks.node_log.seconds_until_due())
        poller = select.poll()
        for source in (wake, self._ranks.starter.link.fileno(), *outputs, *self._ranks.report_fds()):
            poller.register(source, select.POLLIN | select.POLLHUP)
        for fd, events in poll_events([self._channel]).items():
            poller.register(fd, events)
        return [fd for fd, _ in poller.poll(timeout * 1000)]

    def _is_channel_full(self) -> bool:
        """Whether ranks write faster than the channel sends. Ranks must wait: their output is not read meanwhile."""
        return self._channel.unsent_bytes > BACKLOG_BYTES

    def _read_outputs(self, readable: list[int]) -> None:
        for member in self._ranks.living_members():
            if member.output.fd in readable:
                member.output.drain()

    # Reports of the starter

    def _read_starter(self) -> None:
        report = self._ranks.starter.receive_report()
        if report is None:
            self._starter_died()
        else:
            self._handle_report(report)

    def _handle_report(self, report: Report) -> None:
        match report:
            case Started() if report.rank in self._ranks.members:
                self._ranks.record_start(report.rank, report.pid)
                self.send(report)
            case Ready():
                self._ranks.starter.mark_ready(report.pid)
            case StoreDied() | LauncherFailed() | FatalNodeProblem():
                self.send(report)
            case RankEnded() if report.generation == self._generation and report.rank in self._ranks.members:
                self._report_exit(report)
            case LauncherEnded():
                for more in self._ranks.handle_launcher_exit(report.code):
                    self._handle_report(more)
            case LeftoversKilled() if self._stopping is not None and report.generation == self._stopping.generation:
                self._finish_stop(report.generation)

    def _report_exit(self, ended: RankEnded, dead_parent: Parent | None = None) -> None:
        exit = self._ranks.record_exit(ended, is_stopping=self._stopping is not None, dead_parent=dead_parent)
        self.send(Exited(generation=self._generation, exit=exit))

    def _starter_died(self) -> None:
        if not self._ranks.starter.is_ready:
            what = "the starter process failed to start"
            why = "it exited before it was ready; see job.out in the run directory"
            self.send(FatalNodeProblem(what=what, why=why, hint="--cold does not need torch"))
        now = time.time()
        for rank in self._ranks.replace_starter():
            ended = RankEnded(generation=self._generation, rank=rank, code=-signal.SIGKILL, time=now)
            self._report_exit(ended, Parent.STARTER)
        if self._stopping is not None:
            self._finish_stop(self._stopping.generation)

    # Messages of the supervisor

    def _read_supervisor(self) -> bool:
        """Returns false if the connection is closed."""
        try:
            messages = self._channel.receive()
        except ChannelClosed:
            return False
        self._cut_off.restart_timeouts(time.monotonic())
        self.handle_messages(messages)
        return True

    def handle_messages(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._handle_message(message)

    def _handle_message(self, wire: dict[str, Any]) -> None:
        match from_wire(wire):
            case CheckNode() as check:
                self._start_check(check)
            case BindPort() as bind:
                self._generation = bind.generation
                self._bind_port(bind.generation)
            case Start() as start:
                self._generation = start.placement.generation
                self._start(start)
            case Notice() as notice:
                self._give_notice(notice.seconds_left)
            case CollectEvidence() as collect:
                self._collection = EvidenceCollection(
                    collect.generation, self._ranks, self._context, self._flight_budget
                )
            case Stop() as stop:
                self._stop(stop)
            case Shutdown():
                self._shut_down = True
            case Ping():
                pass

    def _start_check(self, check: CheckNode) -> None:
        try:
            from echelon.agent.node_check import NodeCheck  # only here: few runs have a preflight check

            self._check = NodeCheck(check, self._context)
        except OSError as error:  # no working directory, or no free process
            self.send(Remark(text=f"cannot start the preflight check: {error}"))
            self.send(NodeChecked(output=""))

    def _start(self, start: Start) -> None:
        try:
            self._ranks.start(start)
        except OSError as error:  # no space for logs, or no free descriptors
            hint = "free disk space or raise the limit on open files, then run echelon resume {run}"
            self.send(FatalNodeProblem(what="cannot start the ranks", why=str(error), hint=hint))
        except EnvironmentProblem as problem:
            self._report_problem(problem)

    def _bind_port(self, generation: int) -> None:
        self._ports.release()
        try:
            bound = bind_rendezvous_port(self._job, generation, self._address, self._ranks, self._ports)
        except EnvironmentProblem as problem:
            self._report_problem(problem)
        else:
            self.send(bound)

    def _report_problem(self, problem: EnvironmentProblem) -> None:
        self.send(FatalNodeProblem(what=problem.what, why=problem.why or "", hint=problem.hint or ""))

    def _give_notice(self, seconds_left: float) -> None:
        try:
            self._notices.send(seconds_left)
        except OSError as error:
            self.send(Remark(text=f"cannot write the notice file: {error}"))

    # Stopping and saving stacks

    def _stop(self, stop: Stop) -> None:
        if not self._ranks.starter.is_ready:  # no rank has started; the starter may finish its import
            self._ranks.cancel_start()
            self._finish_stop(stop.generation)
            return
        self._stopping = StopSequence(self._ranks, stop.generation, stop.grace, time.monotonic())

    def _finish_stop(self, generation: int) -> None:
        self._stopping = None
        self._ranks.drain_outputs()
        self._report_log_problem()
        self._ranks.clear()
        self._ports.release()
        self.send(Stopped(generation=generation))

    def _advance(self, now: float) -> None:
        if self._check is not None:
            for report in self._check.reports():
                self.send(report)
            self._check = None if self._check.is_done else self._check
        if self._stopping is not None:
            self._stopping.advance(now)
        if self._collection is not None and self._collection.is_done:
            self._send_evidence(self._collection)
            self._collection = None

    def _send_evidence(self, collection: EvidenceCollection) -> None:
        ranks, problem = collection.save()
        if problem:
            self.send(Remark(text=f"cannot save the evidence of a hang: {problem}"))
        self.send(EvidenceCollected(generation=collection.generation, ranks=ranks))

    # Heartbeat

    def _send_heartbeat(self) -> None:
        self._ranks.look_at_node()
        self._notices.send_to_new_ranks()
        samples = self._notices.mark_samples(self._ranks.samples(with_cpu=self._is_cpu_due()))
        self.send(Heartbeat(generation=self._generation, samples=samples))
        self._report_log_problem()

    def _is_cpu_due(self) -> bool:
        timeout = self._job.policies.hang_timeout
        now = time.monotonic()
        if now < self._next_cpu:
            return False
        self._next_cpu = now + (min(CPU_SECONDS, timeout.total_seconds() / 20) if timeout else CPU_SECONDS)
        return True

    def _report_log_problem(self) -> None:
        problem = self._ranks.log_problem()
        if problem is not None and not self._log_problem_reported:
            self._log_problem_reported = True
            self.send(Remark(text=f"output was lost: {problem.strerror}"))
