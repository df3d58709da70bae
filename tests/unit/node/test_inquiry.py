"""Who is lost and who is cut off, from what the scheduler answers and who is still heard. No processes."""

import time
from types import SimpleNamespace

import pytest

from echelon.node.clock import Clock
from echelon.node.hosts import Standing, Unreachable
from echelon.node.inquiry import Inquiry
from echelon.node.situation import AgentLost, Ending, Hopeless, Loss, NoticeDue, WarningCame

NAMES = {0: "n1", 1: "n2", 2: "n3"}


class Scheduler:
    """Answers what it is told to, and counts the questions."""

    def __init__(self, answer=None):
        self.reply = answer
        self.questions = 0

    def ask(self):
        self.questions += 1
        return self

    def answer(self):
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def inquiry(scheduler, *, silent=(), heard_elsewhere=False, clock=None):
    agents = SimpleNamespace(
        hosts=scheduler,
        refused=list,
        silent=lambda _seconds: list(silent),
        hears_another_host=lambda _doubted: heard_elsewhere,
    )
    return Inquiry(agents, clock or Clock(end_at=None, lead=60.0), heartbeat=15.0)


def test_a_silent_host_is_lost_once_the_scheduler_has_answered():
    scheduler, silent = Scheduler(), [(1, Loss.HOST)]
    asked = inquiry(scheduler, silent=silent)
    assert asked.look(NAMES) == []
    assert asked.look(NAMES) == []
    scheduler.reply = Standing()
    assert asked.look(NAMES) == [AgentLost(1, Loss.HOST)]


def test_a_host_that_is_heard_again_before_the_answer_is_not_lost():
    scheduler, silent = Scheduler(), [(1, Loss.HOST)]
    asked = inquiry(scheduler, silent=silent)
    asked.look(NAMES)
    silent.clear()
    scheduler.reply = Standing()
    assert asked.look(NAMES) == []


def test_a_host_that_was_just_lost_is_not_doubted_once_more():
    scheduler, silent = Scheduler(), [(1, Loss.HOST)]
    asked = inquiry(scheduler, silent=silent)
    asked.look(NAMES)
    scheduler.reply = Standing()
    asked.look(NAMES)
    assert scheduler.questions == 1
    silent.clear()
    scheduler.reply = Unreachable("gone")
    assert asked.look(NAMES) == []


def test_when_nobody_answers_at_all_it_is_we_who_are_cut_off():
    scheduler = Scheduler()
    asked = inquiry(scheduler, silent=[(1, Loss.HOST), (2, Loss.HOST)])
    asked.look(NAMES)
    scheduler.reply = Unreachable("scontrol did not answer")
    hopeless, *lost = asked.look(NAMES)
    assert isinstance(hopeless, Hopeless)
    assert hopeless.outcome.ending is Ending.REQUEUED
    assert "neither n2, n3 nor the scheduler answers (scontrol did not answer)" in hopeless.outcome.reason
    assert lost == [AgentLost(1, Loss.HOST), AgentLost(2, Loss.HOST)]


def test_one_other_host_that_is_heard_is_proof_that_we_are_not():
    scheduler = Scheduler()
    asked = inquiry(scheduler, silent=[(1, Loss.HOST)], heard_elsewhere=True)
    asked.look(NAMES)
    scheduler.reply = Unreachable("busy")
    assert asked.look(NAMES) == [AgentLost(1, Loss.HOST)]


def test_a_scheduler_that_does_not_answer_at_the_start_harms_nobody():
    assert inquiry(Scheduler(Unreachable("down"))).look(NAMES) == []


def test_where_there_is_nobody_to_ask_silence_is_enough():
    asked = inquiry(SimpleNamespace(ask=lambda: None), silent=[(1, Loss.HOST)])
    assert asked.look(NAMES) == [AgentLost(1, Loss.HOST)]
    assert asked.warned(2) == AgentLost(2, Loss.PROCESS)


def test_an_agent_that_died_needs_no_question():
    assert inquiry(Scheduler(), silent=[(1, Loss.PROCESS)]).look(NAMES) == [AgentLost(1, Loss.PROCESS)]


@pytest.mark.parametrize("answer", [Standing(), Unreachable("down")])
def test_after_a_warning_the_notice_comes_with_the_answer_whatever_it_is(answer):
    scheduler = Scheduler()
    asked = inquiry(scheduler)
    assert asked.warned(0) == WarningCame()
    assert asked.look(NAMES) == []
    scheduler.reply = answer
    assert asked.look(NAMES) == [NoticeDue()]


def test_the_end_that_the_scheduler_tells_is_the_clocks():
    scheduler = Scheduler(Standing(end_at=time.time() + 100))
    agents = SimpleNamespace(hosts=scheduler, refused=list, silent=lambda _seconds: [])
    clock = Clock(end_at=None)
    Inquiry(agents, clock, heartbeat=15.0).look(NAMES)
    assert clock.seconds_left(time.monotonic()) == pytest.approx(100, abs=2)


def test_just_before_the_notice_it_is_asked_whether_the_end_still_stands():
    scheduler, clock = Scheduler(Standing()), Clock(end_at=time.monotonic() + 3600, lead=60.0)
    asked = inquiry(scheduler, clock=clock)
    asked.look(NAMES)
    assert scheduler.questions == 1
    clock.end_at = time.monotonic() + 75
    scheduler.reply = Standing(end_at=time.time() + 7200)
    for _ in range(5):
        asked.look(NAMES)
    assert scheduler.questions == 2
    assert clock.end_at - time.monotonic() == pytest.approx(7200, abs=5)
    clock.end_at = time.monotonic() + 85
    asked.look(NAMES)
    assert scheduler.questions == 3


def test_an_end_that_stands_is_asked_about_only_once():
    scheduler, clock = Scheduler(Standing(end_at=time.time() + 75)), Clock(end_at=None, lead=60.0)
    asked = inquiry(scheduler, clock=clock)
    for _ in range(5):
        asked.look(NAMES)
    assert scheduler.questions == 2
