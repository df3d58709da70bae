"""Every phase except RUNNING has a time limit."""

import pytest

from echelon.job import Policies
from echelon.supervisor.clock import phase_limit
from echelon.supervisor.state import Phase

MAY_LAST = (Phase.RUNNING, Phase.ENDED)


@pytest.mark.parametrize("phase", Phase)
def test_only_running_may_last(phase):
    limit = phase_limit(phase, Policies(), float("inf"), delay=4.0)
    assert (limit is None) == (phase in MAY_LAST)
    assert limit is None or 0 < limit < 200


@pytest.mark.parametrize(("left", "limit"), [(float("inf"), 30), (5.0, 30), (300.0, 300)])
def test_ranks_that_stop_in_time_have_all_the_time_there_is(left, limit):
    assert phase_limit(Phase.DRAINING, Policies(), left) == limit


def test_a_stop_may_take_as_long_as_the_removal_of_containers():
    plain = phase_limit(Phase.STOPPING, Policies(), 60.0)
    assert phase_limit(Phase.STOPPING, Policies(), 60.0, 120.0) == plain + 120.0
