"""Every wait has an end."""

import pytest

from echelon.job import Policies
from echelon.node.deadlines import phase_limit
from echelon.node.situation import Phase

MAY_LAST = (Phase.RUNNING, Phase.ENDED)


@pytest.mark.parametrize("phase", Phase)
def test_only_running_may_last(phase):
    limit = phase_limit(phase, Policies(), float("inf"))
    assert (limit is None) == (phase in MAY_LAST)
    assert limit is None or 0 < limit < 200


@pytest.mark.parametrize(("left", "limit"), [(float("inf"), 30), (5.0, 30), (300.0, 300)])
def test_ranks_that_stop_in_time_have_all_the_time_there_is(left, limit):
    assert phase_limit(Phase.WINDING, Policies(), left) == limit
