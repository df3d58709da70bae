"""Ranks that hang: their stacks first, then the stop."""

import pytest
from story import Story, in_phase

from echelon.node.faults import Fault
from echelon.node.situation import DumpStacks, Phase, PhaseTimedOut, RanksHung, StacksWritten, StopRanks


def test_stacks_are_saved_before_a_hang_is_ended():
    story = Story().run().tell(RanksHung(0, "no progress for 60 s"))
    assert story.phase is Phase.DUMPING
    assert story.last == (DumpStacks(0, (0, 1)),)


def test_ranks_are_stopped_once_all_stacks_are_saved():
    story = Story().run().tell(RanksHung(0, "hung"), StacksWritten(0, 0))
    assert story.phase is Phase.DUMPING
    assert story.tell(StacksWritten(0, 1)).last == (StopRanks(0, (0, 1), 5.0),)


def test_a_dump_that_never_ends_is_not_waited_for():
    story = Story().run().tell(RanksHung(0, "hung"), StacksWritten(0, 0), PhaseTimedOut(Phase.DUMPING))
    assert story.last[-1] == StopRanks(0, (0, 1), 5.0)


def test_the_hang_is_the_fault_whatever_the_ranks_say_while_they_are_stopped():
    story = Story().run().tell(RanksHung(0, "hung"), PhaseTimedOut(Phase.DUMPING)).leave(0, -15).stopped()
    assert story.outcome.fault == Fault(sentence="hung")
    assert story.outcome.exit_code == 1


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.BINDING, Phase.STOPPING, Phase.WINDING])
def test_only_running_ranks_can_hang(phase):
    story = in_phase(phase)
    assert story.tell(RanksHung(story.generation, "late")).phase is phase
