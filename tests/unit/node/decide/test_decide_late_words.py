"""Word from a generation that is over changes nothing."""

import pytest
from story import Story, gone

from echelon.node.situation import (
    LauncherLost,
    NodeStopped,
    Phase,
    PortBound,
    Progressed,
    RankExited,
    RanksHung,
    StacksWritten,
)


@pytest.mark.parametrize(
    "event",
    [
        RankExited(0, gone(0, 1)),
        PortBound(0, "a", 1, True),
        Progressed(0, step=99, moved=True),
        RanksHung(0, "late"),
        StacksWritten(0, 0),
        NodeStopped(0, 0),
        RankExited(2, gone(0, 1)),
    ],
    ids=lambda event: f"{type(event).__name__}-{event.generation}",
)
def test_word_from_another_generation_changes_nothing(event):
    story = Story(restarts=1).run().die().again()
    before = story.state
    assert story.tell(event).state == before
    assert story.last == ()


def test_a_stop_of_the_last_generation_does_not_end_this_one():
    story = Story(restarts=2).run().die().again().leave(0, 1)
    assert story.tell(NodeStopped(0, 0), NodeStopped(0, 1)).phase is Phase.STOPPING


def test_a_launcher_of_the_last_generation_is_nobodys_fault():
    story = Story(restarts=2).run().die().again().tell(LauncherLost(0, "late"))
    assert story.phase is Phase.RUNNING
