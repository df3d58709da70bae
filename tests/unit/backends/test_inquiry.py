"""Lost and cut-off hosts, by the scheduler's answers and the heartbeats. No processes."""

import time
from types import SimpleNamespace

import pytest

from echelon.backends.hosts import SchedulerView, Unreachable
from echelon.supervisor.clock import Clock
from echelon.supervisor.outcomes import cut_off_outcome
from echelon.supervisor.scheduler_poll import SchedulerPoll
from echelon.supervisor.state import AgentLost, CutOff, Ending, NoticeDue, Rules, State
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import Preempted
from echelon.wire.reports import FatalNodeProblem

NAMES = {0: "n1", 1: "n2", 2: "n3"}


def without_heartbeat(node):
    sentence = f"lost {NAMES[node]}: no heartbeat for 15 s"
    return AgentLost(node, Loss.HOST, Fault(sentence=sentence, host_lost=True))


class Scheduler:
    """Answers what it is told to, and counts the questions."""

    def __init__(self, answer=None):
        self.reply = answer
        self.questions = 0

    def start_query(self):
        self.questions += 1
        return self

    def result(self):
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def inquiry(scheduler, *, silent=(), heard_elsewhere=False, clock=None, connected=True, reasons=None):
    agents = SimpleNamespace(
        hosts=scheduler,
        failed_starts=list,
        lost_agents=lambda _seconds: list(silent),
        another_host_responds=lambda _doubted: heard_elsewhere,
        connected_nodes=lambda: [0, 1, 2] if connected else [],
        loss_reason=(reasons or {}).get,
    )
    return SchedulerPoll(agents, clock or Clock(end_at=None, notice_seconds=60.0), heartbeat=15.0)


def look(asked):
    """Events of the supervisor, which have no node."""
    events = asked.poll(NAMES)
    assert {node for node, _ in events} <= {None}
    return [event for _, event in events]


def test_an_srun_killed_before_its_agent_connected_is_explained():
    killed = Fault(sentence="srun of n2 failed: srun was killed by SIGKILL")
    asked = inquiry(Scheduler(), silent=[(1, Loss.STEP)], connected=False, reasons={1: killed})
    assert look(asked) == [AgentLost(1, Loss.STEP, killed)]


def test_silent_host_is_lost_after_the_scheduler_answers():
    scheduler, silent = Scheduler(), [(1, Loss.HOST)]
    asked = inquiry(scheduler, silent=silent)
    assert look(asked) == []
    assert look(asked) == []
    scheduler.reply = SchedulerView()
    assert look(asked) == [without_heartbeat(1)]


def test_host_with_new_heartbeat_before_answer_is_not_lost():
    scheduler, silent = Scheduler(), [(1, Loss.HOST)]
    asked = inquiry(scheduler, silent=silent)
    look(asked)
    silent.clear()
    scheduler.reply = SchedulerView()
    assert look(asked) == []


def test_lost_host_is_not_queried_again():
    scheduler, silent = Scheduler(), [(1, Loss.HOST)]
    asked = inquiry(scheduler, silent=silent)
    look(asked)
    scheduler.reply = SchedulerView()
    look(asked)
    assert scheduler.questions == 1
    silent.clear()
    scheduler.reply = Unreachable("gone")
    assert look(asked) == []


def test_without_answer_and_heartbeats_it_is_cut_off():
    scheduler = Scheduler()
    asked = inquiry(scheduler, silent=[(1, Loss.HOST), (2, Loss.HOST)])
    look(asked)
    scheduler.reply = Unreachable("scontrol did not answer")
    cut_off, *lost = look(asked)
    assert isinstance(cut_off, CutOff)
    outcome = cut_off_outcome(State(rules=Rules(nodes=3, min_nodes=3), hosts=NAMES), cut_off)
    assert outcome.ending is Ending.REQUEUED
    assert "neither n2, n3 nor the scheduler answers (scontrol did not answer)" in outcome.reason
    assert lost == [without_heartbeat(1), without_heartbeat(2)]


def test_with_a_heartbeat_of_another_host_it_is_not_cut_off():
    scheduler = Scheduler()
    asked = inquiry(scheduler, silent=[(1, Loss.HOST)], heard_elsewhere=True)
    look(asked)
    scheduler.reply = Unreachable("busy")
    assert look(asked) == [without_heartbeat(1)]


def test_no_answer_at_the_start_has_no_effect():
    assert look(inquiry(Scheduler(Unreachable("down")))) == []


def test_without_scheduler_a_silent_host_is_lost():
    asked = inquiry(SimpleNamespace(start_query=lambda: None), silent=[(1, Loss.HOST)])
    assert look(asked) == [without_heartbeat(1)]
    assert asked.handle_preemption(2) == AgentLost(2, Loss.PROCESS)


def test_a_host_lost_before_it_connected_has_no_heartbeat_reason():
    asked = inquiry(SimpleNamespace(start_query=lambda: None), silent=[(1, Loss.HOST)], connected=False)
    assert look(asked) == [AgentLost(1, Loss.HOST)]


def test_dead_agent_is_lost_without_a_query():
    assert look(inquiry(Scheduler(), silent=[(1, Loss.PROCESS)])) == [AgentLost(1, Loss.PROCESS)]


@pytest.mark.parametrize("answer", [SchedulerView(), Unreachable("down")])
def test_notice_follows_any_answer_after_preemption(answer):
    scheduler = Scheduler()
    asked = inquiry(scheduler)
    assert asked.handle_preemption(0) == Preempted()
    assert look(asked) == []
    scheduler.reply = answer
    assert look(asked) == [NoticeDue()]


def test_scheduler_end_sets_the_clock():
    scheduler = Scheduler(SchedulerView(end_at=time.time() + 100))
    agents = SimpleNamespace(hosts=scheduler, failed_starts=list, lost_agents=lambda _seconds: [])
    clock = Clock(end_at=None)
    SchedulerPoll(agents, clock, heartbeat=15.0).poll(NAMES)
    assert clock.seconds_left(time.monotonic()) == pytest.approx(100, abs=2)


def test_end_is_queried_again_before_the_notice():
    scheduler, clock = Scheduler(SchedulerView()), Clock(end_at=time.monotonic() + 3600, notice_seconds=60.0)
    asked = inquiry(scheduler, clock=clock)
    look(asked)
    assert scheduler.questions == 1
    clock.end_at = time.monotonic() + 75
    scheduler.reply = SchedulerView(end_at=time.time() + 7200)
    for _ in range(5):
        look(asked)
    assert scheduler.questions == 2
    assert clock.end_at - time.monotonic() == pytest.approx(7200, abs=5)
    clock.end_at = time.monotonic() + 85
    look(asked)
    assert scheduler.questions == 3


def test_unchanged_end_is_queried_once():
    scheduler, clock = Scheduler(SchedulerView(end_at=time.time() + 75)), Clock(end_at=None, notice_seconds=60.0)
    asked = inquiry(scheduler, clock=clock)
    for _ in range(5):
        look(asked)
    assert scheduler.questions == 2


def test_agent_start_failure_belongs_to_its_node():
    trouble = FatalNodeProblem(what="no such image", why="pull failed", hint="--image")
    agents = SimpleNamespace(hosts=Scheduler(), failed_starts=lambda: [(1, trouble)], lost_agents=lambda _seconds: [])
    assert SchedulerPoll(agents, Clock(end_at=None), heartbeat=15.0).poll(NAMES) == [(1, trouble)]
