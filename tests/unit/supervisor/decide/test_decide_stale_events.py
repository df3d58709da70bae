"""Events of an earlier generation change nothing."""

import pytest
from story import Story, bound, gone, pulse

from echelon.supervisor.state import Phase, RanksActive, RanksHung
from echelon.wire.messages import EvidenceCollected, Exited, Stopped
from echelon.wire.reports import LauncherFailed


@pytest.mark.parametrize(
    "event",
    [
        Exited(generation=0, exit=gone(0, 1)),
        bound(0),
        pulse(0, step=99),
        RanksActive(0),
        RanksHung(0, "late"),
        EvidenceCollected(generation=0),
        Stopped(generation=0),
        Exited(generation=2, exit=gone(0, 1)),
    ],
    ids=lambda event: f"{type(event).__name__}-{event.generation}",
)
def test_event_of_another_generation_changes_nothing(event):
    story = Story(restarts=1).run().die().again()
    before = story.state
    assert story.hear(0, event).state == before
    assert story.last == ()


def test_a_stop_of_the_last_generation_does_not_end_this_one():
    story = Story(restarts=2).run().die().again().leave(0, 1)
    assert story.hear_each(dict.fromkeys((0, 1), Stopped(generation=0))).phase is Phase.STOPPING


def test_stale_launcher_failure_changes_nothing():
    story = Story(restarts=2).run().die().again().hear(0, LauncherFailed(generation=0, sentence="late"))
    assert story.phase is Phase.RUNNING
