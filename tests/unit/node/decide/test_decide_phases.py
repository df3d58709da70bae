"""Every phase can be told, every wait has an end, and nothing happens after the last one."""

from dataclasses import replace

import pytest
from story import BROKEN, SIGTERM, Story, gone, in_phase

from echelon.node.decide import decide
from echelon.node.situation import (
    AgentJoined,
    AgentLost,
    CancelAsked,
    Hopeless,
    LauncherLost,
    Loss,
    NodeStopped,
    NoticeDue,
    Phase,
    PhaseTimedOut,
    PortBound,
    Progressed,
    RankExited,
    RanksHung,
    StacksWritten,
    StoreLost,
    TimeIsUp,
    WarningCame,
)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_told(phase):
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
    AgentJoined(0, "host0"),
    AgentLost(0, Loss.HOST),
    PortBound(0, "a", 1, True),
    RankExited(0, gone(0, 1)),
    Progressed(0, step=1, moved=True),
    RanksHung(0, "hung"),
    StacksWritten(0, 0),
    NodeStopped(0, 0),
    StoreLost(0, "host0"),
    LauncherLost(0, "torchrun has left"),
    WarningCame(),
    *(PhaseTimedOut(phase) for phase in Phase),
    NoticeDue(),
    TimeIsUp(),
    CancelAsked(SIGTERM),
    Hopeless(BROKEN),
)


@pytest.mark.parametrize("event", EVERY_KIND, ids=repr)
def test_nothing_happens_after_the_end(event):
    story = Story(restarts=3, requeues=3).run().all_leave(0).stopped()
    before = story.state
    assert story.tell(event).last == ()
    assert story.state == before


def test_decide_changes_no_state_in_place():
    before = Story(restarts=1).run().state
    copy = replace(before, nodes=dict(before.nodes), hosts=dict(before.hosts), losses=dict(before.losses))
    for event in EVERY_KIND:
        decide(before, event)
    assert before == copy
