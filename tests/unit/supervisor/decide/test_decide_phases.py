"""Every phase handles every event, and ENDED changes nothing."""

from dataclasses import replace
from typing import get_args

import pytest
from story import SIGTERM, TROUBLE, Story, bound, gone, hello, in_phase, pulse

from echelon.supervisor.state import (
    AgentEvent,
    AgentLost,
    CancelRequested,
    CutOff,
    Event,
    NoticeDue,
    Phase,
    PhaseTimedOut,
    RanksActive,
    RanksHung,
    TimeLimitReached,
)
from echelon.supervisor.transitions import decide
from echelon.wire.faults import Loss
from echelon.wire.messages import EvidenceCollected, Exited, MeetingOpened, NodeChecked, Preempted, Stopped
from echelon.wire.reports import LauncherFailed, StoreDied


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_has_a_description(phase):
    assert in_phase(phase).phase is phase


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.RUNNING, Phase.ENDED)])
def test_every_wait_has_an_end(phase):
    assert in_phase(phase).tell(PhaseTimedOut(phase)).phase is not phase


def test_running_has_no_time_limit_of_its_own():
    assert in_phase(Phase.RUNNING).tell(PhaseTimedOut(Phase.RUNNING)).phase is Phase.RUNNING


@pytest.mark.parametrize("phase", Phase)
def test_a_timeout_of_another_phase_changes_nothing(phase):
    story = in_phase(phase)
    before = story.state
    for other in set(Phase) - {phase}:
        assert story.tell(PhaseTimedOut(other)).state == before


EVERY_KIND = (
    hello(0),
    MeetingOpened(port=7000),
    NodeChecked(output=""),
    bound(0),
    Exited(generation=0, exit=gone(0, 1)),
    pulse(0, step=1),
    EvidenceCollected(generation=0),
    Stopped(generation=0),
    StoreDied(generation=0),
    LauncherFailed(generation=0, sentence="torchrun has left"),
    Preempted(),
    TROUBLE,
    AgentLost(0, Loss.HOST),
    CutOff("host0", (1,), "no answer"),
    RanksActive(0),
    RanksHung(0, "hung"),
    *(PhaseTimedOut(phase) for phase in Phase),
    NoticeDue(),
    TimeLimitReached(),
    CancelRequested(SIGTERM),
)


def test_every_kind_of_event_is_among_them():
    assert {type(event) for event in EVERY_KIND} == set(get_args(Event))


@pytest.mark.parametrize("message", [event for event in EVERY_KIND if isinstance(event, AgentEvent)], ids=repr)
def test_message_without_a_node_changes_nothing(message):
    story = Story(restarts=1).run()
    before = story.state
    assert story.hear(None, message).last == ()
    assert story.state == before


@pytest.mark.parametrize("event", EVERY_KIND, ids=repr)
def test_nothing_happens_after_the_end(event):
    story = Story(restarts=3, requeues=3).run().all_leave(0).stopped()
    before = story.state
    assert story.hear(0, event).last == ()
    assert story.state == before


def test_decide_changes_no_state_in_place():
    before = Story(restarts=1).run().state
    copy = replace(before, nodes=dict(before.nodes), hosts=dict(before.hosts), losses=dict(before.losses))
    for event in EVERY_KIND:
        decide(before, 0, event)
    assert before == copy
