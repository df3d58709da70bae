"""Queries the scheduler about the attempt: its end, a preemption, a node that is cut off."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from echelon.backends.hosts import Unreachable
from echelon.supervisor.clock import Clock
from echelon.supervisor.connections import Agents
from echelon.supervisor.state import AgentLost, CutOff, Event, NoticeDue, SupervisorEvent
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import Preempted

QUERY_AHEAD_SECONDS = 30.0  # the longest time for an answer
SAME_SECONDS = 2.0  # schedulers round the end to whole seconds, so equal ends may differ a little


class SchedulerPoll:
    """Sends one query at a time and does not block until its answer."""

    def __init__(self, agents: Agents, clock: Clock, heartbeat: float) -> None:
        self._agents = agents
        self._clock = clock
        self._heartbeat = heartbeat
        self._query = agents.hosts.start_query()
        self._preempted = False
        self._checked_end: float | None = None
        """The end for which a query was repeated just before the notice: the scheduler may have extended it."""
        self._suspected: set[int] = set()
        """Nodes without a heartbeat. If the scheduler does not answer either, this host itself may be cut off."""

    def handle_preemption(self, node: int) -> Preempted | AgentLost:
        """The event for a SIGTERM on this node. Without a scheduler that may have sent it, only this agent is lost."""
        if not self._start_query():
            return AgentLost(node, Loss.PROCESS)
        self._preempted = True
        return Preempted()

    def poll(self, names: Mapping[int, str]) -> list[tuple[int | None, Event]]:
        """Events from new answers, agents that failed and hosts that are certainly lost.

        The node is set for an event of an agent and None otherwise.
        """
        answers = self._answer_events(names)
        self._check_end_again()
        refused = self._agents.failed_starts()
        decided = {event.node for event in answers if isinstance(event, AgentLost)}
        lost: list[SupervisorEvent] = []
        for node, loss in self._agents.lost_agents(self._heartbeat):
            if node in decided:
                continue
            if loss is Loss.HOST and self._start_query():
                self._suspected.add(node)
            else:
                lost.append(self._loss_event(node, loss, names))
        return [*((None, event) for event in answers), *refused, *((None, event) for event in lost)]

    def restart_timeouts(self) -> None:
        """Call after this process was stopped. Clears the suspected hosts and queries the end, which may be later."""
        self._suspected.clear()
        self._start_query()

    def _check_end_again(self) -> None:
        end = self._clock.end_at
        if end is None or not self._clock.is_notice_near(time.monotonic(), QUERY_AHEAD_SECONDS):
            return
        if self._checked_end is None or abs(end - self._checked_end) > SAME_SECONDS:
            self._checked_end = end
            self._start_query()

    def _start_query(self) -> bool:
        """Starts a query unless one is pending. False if there is no scheduler to query."""
        self._query = self._query or self._agents.hosts.start_query()
        return self._query is not None

    def _answer_events(self, names: Mapping[int, str]) -> list[SupervisorEvent]:
        if self._query is None:
            return []
        try:
            standing = self._query.result()
        except Unreachable as problem:
            events = self._no_answer_events(names, str(problem))
        else:
            if standing is None:
                return []
            if standing.end_at is not None:
                now = time.monotonic()
                self._clock.set_end(now + standing.end_at - time.time(), now)
            silent = self._agents.lost_agents(self._heartbeat)
            events = [self._loss_event(node, loss, names) for node, loss in silent if node in self._suspected]
        self._query, self._suspected = None, set()
        return [*events, NoticeDue()] if self._preempted else events

    def _no_answer_events(self, names: Mapping[int, str], problem: str) -> list[SupervisorEvent]:
        """A heartbeat from any other host proves that this host is not cut off."""
        nodes = tuple(sorted(self._suspected))
        lost: list[SupervisorEvent] = [self._loss_event(node, Loss.HOST, names) for node in nodes]
        if not lost or self._agents.another_host_responds(self._suspected):
            return lost
        return [CutOff(socket.gethostname(), nodes, problem), *lost]

    def _loss_event(self, node: int, loss: Loss, names: Mapping[int, str]) -> AgentLost:
        """Only an agent that has connected sends heartbeats."""
        if loss is not Loss.HOST or node not in self._agents.connected_nodes():
            return AgentLost(node, loss, self._agents.loss_reason(node))
        sentence = f"lost {names.get(node, f'node {node}')}: no heartbeat for {self._heartbeat:g} s"
        return AgentLost(node, loss, Fault(sentence=sentence, host_lost=True))
