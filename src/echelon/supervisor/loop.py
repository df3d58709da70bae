"""The supervisor's event loop: starts agents, passes their messages to `decide`, performs its actions."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module

from echelon.diagnosis.history import NO_HISTORY, History
from echelon.events import Kind
from echelon.job import Job
from echelon.supervisor.clock import Clock, phase_limit
from echelon.supervisor.connections import Agents
from echelon.supervisor.gathering import initial_decision
from echelon.supervisor.hang_timeout import GLOO_SECONDS, NCCL_SECONDS, SlowWatch, StepTimes
from echelon.supervisor.hangs import HangDetector
from echelon.supervisor.journal import Journal
from echelon.supervisor.scheduler_poll import SchedulerPoll
from echelon.supervisor.state import (
    Action,
    AgentLost,
    CancelRequested,
    CheckNodes,
    EndAgent,
    Event,
    Finish,
    GiveNotice,
    NoticeDue,
    Outcome,
    Phase,
    PhaseTimedOut,
    RanksActive,
    RanksHung,
    ReportFault,
    Rules,
    Send,
    StartAgent,
    StartRanks,
    Warn,
)
from echelon.supervisor.transitions import decide
from echelon.system.signals import read_signals
from echelon.system.suspension import PauseDetector
from echelon.wire.attempt_files import ReceivedFiles
from echelon.wire.messages import (
    AgentMessage,
    CollectEvidence,
    Exited,
    FilePiece,
    Heartbeat,
    Notice,
    Ping,
    Preempted,
    Remark,
    Shutdown,
    SupervisorMessage,
)
from echelon.wire.reports import Started

PING_SECONDS = 1.0
PROGRESS_EVENT_SECONDS = 10.0


class Supervisor:
    def __init__(
        self,
        *,
        job: Job,
        run_id: str,
        attempt: int,
        rules: Rules,
        agents: Agents,
        journal: Journal,
        history: History = NO_HISTORY,
    ) -> None:
        self._job = job
        self._run_id = run_id
        self._attempt = attempt
        self._agents = agents
        self._journal = journal
        self._received = ReceivedFiles(journal.attempt_dir, job.policies.log_max)
        self._clock = Clock.for_job(job, time.monotonic(), agents.hosts.reserve_seconds)
        self._phase_since = time.monotonic()
        self._times, self._slow = StepTimes(), SlowWatch()
        self._hangs = HangDetector(started=time.monotonic())
        self._outcome: Outcome | None = None
        heartbeat = job.policies.heartbeat.total_seconds()
        self._scheduler = SchedulerPoll(agents, self._clock, heartbeat)
        self._pauses = PauseDetector(time.monotonic(), heartbeat)
        self._was_continued = False
        self._next_ping = 0.0
        self._next_progress_event = 0.0
        self._state, self._initial_actions = initial_decision(rules, history)
        names = {node: host.name for node, host in enumerate(agents.hosts.all)}
        self._state = replace(self._state, hosts=names)  # includes hosts that never connect

    def run(self, wake: int) -> Outcome:
        """Runs until there is an outcome. `wake` is the descriptor on which signals arrive."""
        resources = self._job.resources
        self._journal.event(
            Kind.STARTED,
            pid=os.getpid(),
            nodes=resources.nodes,
            procs_per_node=resources.procs_per_node,
            gpus_per_node=resources.gpus_per_node,
        )
        self._perform_all(self._initial_actions)
        import_module("echelon.diagnosis.deaths")  # takes 30 ms: while the agents start, and not after a fault
        while self._outcome is None:
            readable = self._wait(wake)
            lost = self._pauses.seconds_paused(time.monotonic())
            if lost or wake in readable:  # after a stop, poll() does not check its descriptors again
                self._handle_signals(wake)
            if lost:
                self._restart_timeouts(lost)
            messages, closed = self._agents.receive(readable)
            for node, message in messages:
                self._handle_message(node, message)
            for node, loss in closed:
                self._handle(None, AgentLost(node, loss, self._agents.loss_reason(node)))
            self._check_deadlines()
        self._end_agents()
        return self._outcome

    def _wait(self, wake: int) -> set[int]:
        poller = select.poll()
        for fd, events in self._agents.poll_events().items():
            poller.register(fd, events)
        poller.register(wake, select.POLLIN)
        timeout = max(0.0, min(self._next_ping, self._clock.next_deadline()) - time.monotonic())
        return {fd for fd, _ in poller.poll(min(timeout, 0.25) * 1000)}

    def _handle(self, node: int | None, event: Event) -> None:
        before = (self._state.phase, self._state.generation)
        self._state, actions = decide(self._state, node, event)
        if (self._state.phase, self._state.generation) != before:
            self._phase_since = time.monotonic()
        self._perform_all(actions)

    # Signals and messages

    def _handle_signals(self, wake: int) -> None:
        near = self._clock.is_notice_near(time.monotonic(), self._agents.hosts.early_notice_seconds)
        for signum in read_signals(wake):
            if signum in (signal.SIGTERM, signal.SIGINT):
                self._handle(None, CancelRequested(signum))
            elif signum == signal.SIGCONT:
                self._was_continued = True
            elif signum == signal.SIGUSR1 and not near:
                self._handle(None, NoticeDue())

    def _handle_message(self, node: int, message: AgentMessage) -> None:
        match message:
            case Started():
                facts = {"rank": message.rank, "pid": message.pid, "node": node, "generation": message.generation}
                self._journal.event(Kind.RANK_READY, **facts)
            case Remark():
                self._journal.remark(f"{self._state.host(node)}: {message.text}")
            case FilePiece():
                problem = self._received.write_file(message)
                if problem is not None:
                    self._journal.remark(f"{self._state.host(node)}: {problem}")
            case Preempted():
                self._handle(node, self._scheduler.handle_preemption(node))
            case Heartbeat():
                self._handle_heartbeat(node, message)
            case Exited():
                self._hangs.record_exit(time.monotonic(), message.exit.rank, message.exit.code)
                self._handle(node, message)
            case _:
                self._handle(node, message)

    def _handle_heartbeat(self, node: int, heartbeat: Heartbeat) -> None:
        if heartbeat.generation != self._state.generation or self._state.phase is not Phase.RUNNING:
            return
        self._hangs.observe(time.monotonic(), heartbeat.samples)
        self._slow.observe(self._state.host(node), heartbeat.samples)
        for verdict in self._slow.changes(self._hangs.ranks):
            self._journal.slow(verdict)
        self._handle(node, heartbeat)
        if self._hangs.active:
            self._handle(None, RanksActive(heartbeat.generation))

    # Time

    def _restart_timeouts(self, lost: float) -> None:
        """Restarts heartbeat and hang timeouts after the loop stood still for `lost` seconds.

        Moves the time limit only after a SIGCONT, which ends a stop of this process. Without one, the machine was
        frozen or an iteration of the loop was slow.
        """
        now = time.monotonic()
        self._agents.restart_timeouts(now, lost)  # no heartbeat could arrive in that time
        self._hangs.restart_timeouts(now)
        if self._was_continued:
            self._was_continued = False
            self._journal.print_only(
                f"the supervisor was stopped for {lost:.0f} s: restarted heartbeat and hang timeouts"
            )
            self._phase_since += lost
            self._clock.postpone_end(lost)
            self._scheduler.restart_timeouts()

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        due = [(None, event) for event in self._clock.due_events(now)]
        for node, event in (*due, *self._scheduler.poll(self._state.hosts)):
            self._handle(node, event)
        removal = self._agents.hosts.container_removal_seconds
        left, delay = self._clock.seconds_left(now), self._state.delay
        limit = phase_limit(self._state.phase, self._job.policies, left, removal, delay)
        if limit is not None and now - self._phase_since > limit:
            self._handle(None, PhaseTimedOut(self._state.phase))
            self._phase_since = now
        self._check_hangs(now)
        self._report_progress(now)
        self._received.flush_if_due()
        if now >= self._next_ping:
            self._next_ping = now + min(PING_SECONDS, self._job.policies.heartbeat.total_seconds() / 5)
            self._send(self._agents.connected_nodes(), Ping())
        self._agents.flush()
        self._agents.hosts.end_late_agents()

    def _check_hangs(self, now: float) -> None:
        if self._state.phase is not Phase.RUNNING:
            return
        policies, generation = self._job.policies, self._state.generation
        timeout = None if policies.hang_timeout is None else policies.hang_timeout.total_seconds()
        absent = self._hangs.missing_ranks_sentence(now, policies.join_timeout.total_seconds())
        if absent is not None:
            self._handle(None, RanksHung(generation, absent, incomplete=True))
        late = self._hangs.late_exit_warning(now, timeout)
        for warning in filter(None, (late, self._hangs.notice_warning(now))):
            self._journal.warn(warning)
        if late is not None:
            self._send(self._state.members, CollectEvidence(generation=generation))  # a later verdict uses the stacks
        hang = self._hangs.find_hang(now, timeout, NCCL_SECONDS if self._job.resources.gpus_per_node else GLOO_SECONDS)
        if hang is not None:
            idle, finished = self._hangs.idle_by_rank(now), tuple(sorted(self._hangs.finished))
            event = RanksHung(
                generation, hang.sentence, idle_seconds=hang.idle_seconds, idle_by_rank=idle, finished=finished
            )
            self._handle(None, event)

    def _report_progress(self, now: float) -> None:
        step = self._state.step
        if step is not None and now >= self._next_progress_event and self._state.phase is Phase.RUNNING:
            self._next_progress_event = now + PROGRESS_EVENT_SECONDS
            self._journal.event(Kind.PROGRESS, step=step, generation=self._state.generation)

    # Actions

    def _perform_all(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case StartAgent():
                self._agents.start(action.node)
            case EndAgent():
                self._agents.end(action.node)
            case Send():
                self._send(action.nodes, action.message)
            case CheckNodes():
                self._agents.check_nodes(action)
            case Warn():
                self._journal.warn(action.text)
            case StartRanks():
                self._start_ranks(action)
            case GiveNotice():
                self._give_notice(action)
            case ReportFault():
                self._journal.fault(action)
            case Finish():
                self._outcome = action.outcome

    def _start_ranks(self, action: StartRanks) -> None:
        ranks = len(action.members) * self._job.resources.procs_per_node
        self._hangs = HangDetector(started=time.monotonic(), expected=ranks, times=self._times)
        self._times.restart()
        self._slow = SlowWatch(ranks)
        hosts = [self._state.host(node) for node in action.members]
        bound = action.bound
        facts = {"generation": bound.generation, "hosts": hosts, "address": action.address, "port": bound.port}
        self._journal.event(Kind.GENERATION, **facts)
        self._agents.start_ranks(self._run_id, action)

    def _give_notice(self, action: GiveNotice) -> None:
        left = min(self._clock.seconds_left(time.monotonic()), self._job.policies.notice.total_seconds())
        self._journal.event(Kind.NOTICE, seconds_left=round(left, 1))
        self._hangs.expect_notice_handling(time.monotonic(), left)
        self._send(action.members, Notice(seconds_left=left))

    def _end_agents(self) -> None:
        self._agents.seconds_left = self._clock.seconds_left(time.monotonic())
        self._send(self._agents.connected_nodes(), Shutdown())
        self._agents.flush()
        self._received.flush()

    def _send(self, nodes: Iterable[int], message: SupervisorMessage) -> None:
        for node in nodes:
            self._agents.send(node, message)
