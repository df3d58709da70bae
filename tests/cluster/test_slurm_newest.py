"""A few tests of Slurm, repeated on the newest version in Debian, if it was unpacked (tools/slurm_tree.py sid)."""

import pytest

from test_slurm import (  # noqa: F401
    test_cancel_gives_ranks_the_grace_period,
    test_run_inside_an_allocation_submits_nothing,
    test_run_is_followed_from_submission_to_end,
)
from test_slurm_control import test_array_is_one_job_with_a_run_for_each_index  # noqa: F401
from test_slurm_losses import test_killed_rank_uses_one_generation_only  # noqa: F401
from test_slurm_time import test_requeue_by_an_administrator_continues_the_run  # noqa: F401
from test_slurm_versions import test_the_cluster_has_the_unpacked_version  # noqa: F401
from versions import unpacked

pytestmark = pytest.mark.parametrize("slurm", unpacked("sid"))
