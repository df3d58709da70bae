"""One per attempt: starts the agents, turns what they say into decisions, performs them, and records."""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import replace

from echelon.events import Kind
from echelon.job import Job
from echelon.node.agents import Agents
from echelon.node.clock import Clock
from echelon.node.deadlines import phase_limit
from echelon.node.decide import decide, opening
from echelon.node.inquiry import Inquiry, trouble_outcome
from echelon.node.messages import (
    Bind,
    Bound,
    Exited,
    Hello,
    LauncherFailed,
    Leave,
    Notice,
    Ping,
    Pulse,
    Remark,
    SaveStacks,
    StacksSaved,
    Started,
    Stop,
    Stopped,
    StoreDied,
    Trouble,
    Upward,
    Warned,
    Written,
)  # fmt: skip
from echelon.node.record import Record
from echelon.node.sinks import Archive
from echelon.node.situation import (
    Action,
    AgentJoined,
    AgentLost,
    BindPort,
    CancelAsked,
    DumpStacks,
    EndAgent,
    Event,
    Finish,
    GiveNotice,
    Hopeless,
    LauncherLost,
    NodeStopped,
    NoticeDue,
    Outcome,
    Phase,
    PhaseTimedOut,
    PortBound,
    Progressed,
    RankExited,
    RanksHung,
    ReportFault,
    Rules,
    StacksWritten,
    StartAgent,
    StartRanks,
    StopRanks,
    StoreLost,
)  # fmt: skip
from echelon.node.watch import Watch
from echelon.plan import Placement

PING_SECONDS = 1.0
PROGRESS_EVENT_SECONDS = 10.0


class Supervisor:
    def __init__(self, *, job: Job, run_id: str, attempt: int, rules: Rules, agents: Agents, record: Record) -> None:
        self._job = job
        self._run_id = run_id
        self._attempt = attempt
        self._agents = agents
        self._record = record
        self._archive = Archive(record.attempt_dir)
        self._clock = Clock.of(job, time.monotonic(), agents.hosts.reserve_seconds)
        self._phase_since = time.monotonic()
        self._watch = Watch(started=time.monotonic())
        self._outcome: Outcome | None = None
        self._inquiry = Inquiry(agents, self._clock, job.policies.heartbeat.total_seconds())
        self._next_ping = 0.0
        self._next_progress_event = 0.0
        self._state, self._opening = opening(rules)
        names = {node: host.name for node, host in enumerate(agents.hosts.all)}
        self._state = replace(self._state, hosts=names)  # of those, too, that never come

    def work(self, wake: int) -> Outcome:
        """Until there is an outcome. `wake` is where signals arrive."""
        resources = self._job.resources
        self._record.event(
            Kind.STARTED, pid=os.getpid(), nodes=resources.nodes, procs_per_node=resources.procs_per_node,
            gpus_per_node=resources.gpus_per_node,
        )  # fmt: skip
        self._perform_all(self._opening)
        while self._outcome is None:
            readable = self._wait(wake)
            if wake in readable:
                self._hear_signals(wake)
            said, gone = self._agents.hear(readable)
            for node, message in said:
                self._hear(node, message)
            for node, loss in gone:
                self._handle(AgentLost(node, loss))
            self._look_at_the_clock()
        self._leave()
        return self._outcome

    def _wait(self, wake: int) -> set[int]:
        poller = select.poll()
        for fd, events in self._agents.interests().items():
            poller.register(fd, events)
        poller.register(wake, select.POLLIN)
        timeout = max(0.0, min(self._next_ping, self._clock.next()) - time.monotonic())
        return {fd for fd, _ in poller.poll(min(timeout, 0.25) * 1000)}

    def _handle(self, event: Event) -> None:
        before = (self._state.phase, self._state.generation)
        self._state, actions = decide(self._state, event)
        if (self._state.phase, self._state.generation) != before:
            self._phase_since = time.monotonic()
        self._perform_all(actions)

    # What is heard

    def _hear_signals(self, wake: int) -> None:
        now = time.monotonic()
        for signum in os.read(wake, 4096):
            if signum in (signal.SIGTERM, signal.SIGINT):
                self._handle(CancelAsked(signum))
            elif signum == signal.SIGUSR1 and not self._clock.is_near(now, self._agents.hosts.early_seconds):
                self._handle(NoticeDue())

    def _hear(self, node: int, message: Upward) -> None:
        match message:
            case Hello():
                self._handle(AgentJoined(node, message.host))
            case Bound():
                address = self._agents.agents[node].address
                port, second = message.port, message.launcher_port
                self._handle(PortBound(message.generation, address, port, message.store_is_up, second))
            case Started():
                facts = {"rank": message.rank, "pid": message.pid, "node": node, "generation": message.generation}
                self._record.event(Kind.RANK_READY, **facts)
            case Exited():
                self._watch.forget(message.exit.rank)
                self._handle(RankExited(message.generation, message.exit))
            case StoreDied():
                self._handle(StoreLost(message.generation, self._host(node)))
            case LauncherFailed():
                self._handle(LauncherLost(message.generation, message.sentence))
            case StacksSaved():
                self._handle(StacksWritten(message.generation, node))
            case Stopped():
                self._handle(NodeStopped(message.generation, node))
            case Pulse():
                self._hear_pulse(message)
            case Trouble():
                self._handle(Hopeless(trouble_outcome(self._host(node), message)))
            case Warned():
                self._handle(self._inquiry.warned(node))
            case Remark():
                self._record.remark(f"{self._host(node)}: {message.text}")
            case Written():
                problem = self._archive.keep(message)
                if problem is not None:
                    self._record.remark(f"{self._host(node)}: {problem}")

    def _host(self, node: int) -> str:
        return self._state.hosts.get(node, f"node {node}")

    def _hear_pulse(self, pulse: Pulse) -> None:
        if pulse.generation != self._state.generation or self._state.phase is not Phase.RUNNING:
            return
        self._watch.observe(time.monotonic(), pulse.samples)
        self._handle(Progressed(pulse.generation, self._watch.step, self._watch.committed, self._watch.moved))

    # Time

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for event in (*self._clock.due(now), *self._inquiry.look(self._state.hosts)):
            self._handle(event)
        limit = phase_limit(self._state.phase, self._job.policies, self._clock.seconds_left(now))
        if limit is not None and now - self._phase_since > limit:
            self._handle(PhaseTimedOut(self._state.phase))
            self._phase_since = now
        self._look_for_hangs(now)
        self._report_progress(now)
        if now >= self._next_ping:
            self._next_ping = now + min(PING_SECONDS, self._job.policies.heartbeat.total_seconds() / 5)
            for node in self._agents.everyone():
                self._agents.tell(node, Ping())
        self._agents.flush()
        self._agents.hosts.tend()

    def _look_for_hangs(self, now: float) -> None:
        timeout = self._job.policies.hang_timeout
        if timeout is None or self._state.phase is not Phase.RUNNING:
            return
        patience = self._job.policies.join_timeout.total_seconds()
        sentence = self._watch.hang(now, timeout.total_seconds(), patience)
        if sentence is not None:
            self._handle(RanksHung(self._state.generation, sentence))

    def _report_progress(self, now: float) -> None:
        step = self._state.step
        if step is not None and now >= self._next_progress_event and self._state.phase is Phase.RUNNING:
            self._next_progress_event = now + PROGRESS_EVENT_SECONDS
            self._record.event(Kind.PROGRESS, step=step, generation=self._state.generation)

    # What is done

    def _perform_all(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case StartAgent():
                self._agents.start(action.node)
            case EndAgent():
                self._agents.end(action.node)
            case BindPort():
                self._agents.tell(action.node, Bind(generation=action.generation))
            case StartRanks():
                self._start_ranks(action)
            case GiveNotice():
                self._give_notice(action)
            case DumpStacks():
                for node in action.members:
                    self._agents.tell(node, SaveStacks(generation=action.generation))
            case StopRanks():
                for node in action.members:
                    self._agents.tell(node, Stop(generation=action.generation, grace=action.grace))
            case ReportFault():
                self._report_fault(action)
            case Finish():
                self._outcome = action.outcome

    def _start_ranks(self, action: StartRanks) -> None:
        self._watch = Watch(started=time.monotonic())
        hosts = [self._host(node) for node in action.members]
        self._record.event(
            Kind.GENERATION,
            generation=action.generation,
            hosts=hosts,
            address=action.address,
            port=action.port,
        )
        for node_rank, node in enumerate(action.members):
            placement = Placement(
                run_id=self._run_id, attempt=self._attempt, generation=action.generation, node_rank=node_rank,
                nodes=len(action.members), procs_per_node=self._job.resources.procs_per_node,
                main_address=action.address, main_port=action.port, store_is_up=action.store_is_up,
                max_restarts=self._job.policies.restarts, launcher_port=action.launcher_port,
            )  # fmt: skip
            self._agents.tell(node, self._agents.start_message(action.members, placement))

    def _give_notice(self, action: GiveNotice) -> None:
        left = min(self._clock.seconds_left(time.monotonic()), self._job.policies.notice.total_seconds())
        self._record.event(Kind.NOTICE, seconds_left=round(left, 1))
        for node in action.members:
            self._agents.tell(node, Notice(seconds_left=left))

    def _report_fault(self, action: ReportFault) -> None:
        self._record.error(action.fault)
        self._record.event(
            Kind.FAULT, generation=action.generation, fault=action.fault.sentence,
            restarts_left=action.restarts_left, step=self._state.step,
        )  # fmt: skip

    def _leave(self) -> None:
        for node in self._agents.everyone():
            self._agents.tell(node, Leave())
        self._agents.flush()
