"""What the supervisor asks its scheduler, and what the answers mean: when the end is, and who is cut off from whom."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from echelon.errors import EnvironmentProblem
from echelon.exit_codes import REQUEUE
from echelon.node.agents import Agents
from echelon.node.clock import Clock
from echelon.node.hosts import Unreachable
from echelon.node.messages import Trouble
from echelon.node.situation import AgentLost, Ending, Event, Hopeless, Loss, NoticeDue, Outcome, WarningCame

ASK_AHEAD_SECONDS = 30.0  # as long as an answer may take
SAME_SECONDS = 2.0  # an end that is told in whole seconds is never told quite the same


class Inquiry:
    """One question at a time, and nobody waits for its answer."""

    def __init__(self, agents: Agents, clock: Clock, heartbeat: float) -> None:
        self._agents = agents
        self._clock = clock
        self._heartbeat = heartbeat
        self._question = agents.hosts.ask()
        self._warned = False
        self._asked_before: float | None = None
        """The end that was asked about once more, just before the notice: it may have been put off meanwhile."""
        self._doubted: set[int] = set()
        """Hosts that fell silent, or so it seems: if the scheduler does not answer either, it is we who are cut off."""

    def warned(self, node: int) -> Event:
        """This node was told to end. Where there is no scheduler that would, somebody wants this one agent gone."""
        if not self._ask():
            return AgentLost(node, Loss.PROCESS)
        self._warned = True
        return WarningCame()

    def look(self, names: Mapping[int, str]) -> list[Event]:
        """What has come to light since the last look: answers, agents that died, hosts that are lost for certain."""
        events = self._answers(names)
        self._ask_whether_the_end_still_stands()
        events += [Hopeless(trouble_outcome(names[node], trouble)) for node, trouble in self._agents.refused()]
        settled = {event.node for event in events if isinstance(event, AgentLost)}
        for node, loss in self._agents.silent(self._heartbeat):
            if node in settled:
                continue
            if loss is Loss.HOST and self._ask():
                self._doubted.add(node)
            else:
                events.append(AgentLost(node, loss))
        return events

    def _ask_whether_the_end_still_stands(self) -> None:
        end = self._clock.end_at
        if end is None or not self._clock.is_near(time.monotonic(), ASK_AHEAD_SECONDS):
            return
        if self._asked_before is None or abs(end - self._asked_before) > SAME_SECONDS:
            self._asked_before = end
            self._ask()

    def _ask(self) -> bool:
        """Whether there is a question under way, now if not before."""
        self._question = self._question or self._agents.hosts.ask()
        return self._question is not None

    def _answers(self, names: Mapping[int, str]) -> list[Event]:
        if self._question is None:
            return []
        try:
            standing = self._question.answer()
        except Unreachable as problem:
            events = self._without_an_answer(names, str(problem))
        else:
            if standing is None:
                return []
            if standing.end_at is not None:
                now = time.monotonic()
                self._clock.ends(now + standing.end_at - time.time(), now)
            silent = self._agents.silent(self._heartbeat)
            events = [AgentLost(node, loss) for node, loss in silent if node in self._doubted]
        self._question, self._doubted = None, set()
        return [*events, NoticeDue()] if self._warned else events

    def _without_an_answer(self, names: Mapping[int, str], problem: str) -> list[Event]:
        """One other host that is still heard is proof enough that it is not we who are cut off."""
        lost: list[Event] = [AgentLost(node, Loss.HOST) for node in sorted(self._doubted)]
        if not lost or self._agents.hears_another_host(self._doubted):
            return lost
        return [Hopeless(_cut_off([names[node] for node in sorted(self._doubted)], problem)), *lost]


def trouble_outcome(host: str, trouble: Trouble) -> Outcome:
    """No restart will mend it."""
    return Outcome(
        ending=Ending.FAILED,
        exit_code=EnvironmentProblem.exit_code,
        reason=f"{trouble.what} (on {host}): {trouble.why}",
        hint=trouble.hint,
    )


def _cut_off(lost: list[str], problem: str) -> Outcome:
    """Whoever else is left of this job goes on without us, so nothing of ours may."""
    reason = f"{socket.gethostname()} is cut off: neither {', '.join(lost)} nor the scheduler answers ({problem})"
    return Outcome(ending=Ending.REQUEUED, exit_code=REQUEUE, reason=reason, counts=False)
