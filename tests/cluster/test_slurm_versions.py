"""The main tests of Slurm, repeated on Slurm 24.11 (tools/slurm_tree.py unpacks it).

To run another test on it, import the test here with its fixtures.
"""

import pytest

from test_cluster_launchers import test_world_is_the_same_for_every_source_of_the_rank  # noqa: F401
from test_slurm import (  # noqa: F401
    test_array_has_a_run_for_each_index,
    test_cancel_gives_ranks_the_grace_period,
    test_error_of_sbatch_is_shown_unchanged,
    test_library_joins_under_plain_srun,
    test_run_inside_an_allocation_submits_nothing,
    test_run_is_followed_from_submission_to_end,
    test_special_characters_stay_quoted_everywhere,
    test_submit_from_inside_another_job,
)
from test_slurm_control import (  # noqa: F401
    busy,
    hello,
    test_a_pending_array_is_cancelled_by_its_own_id,
    test_a_running_array_is_cancelled_by_its_job_id,
    test_array_is_one_job_with_a_run_for_each_index,
    test_controller_that_is_down_is_reported_and_ends_nothing,
    test_queue_reason_and_expected_start_are_shown,
    test_queued_run_is_cancelled,
    test_requeued_run_waits_in_the_queue_again,
    test_verdict_reports_a_script_that_could_not_start,
    wait,
)
from test_slurm_losses import (  # noqa: F401
    test_killed_rank_uses_one_generation_only,
    test_powerless_node_is_replaced,
    test_run_continues_after_the_first_node_is_lost,
)
from test_slurm_suspend import test_suspended_job_continues_after_resume  # noqa: F401
from test_slurm_time import (  # noqa: F401
    test_preempted_run_gets_notice_and_continues,
    test_preemption_gives_notice_to_ranks_that_handle_only_usr1,
    test_requeue_by_an_administrator_continues_the_run,
    test_scancel_by_the_user_ends_the_run,
    test_successor_follows_if_requeue_is_not_allowed,
)
from versions import unpacked, version_of

pytestmark = pytest.mark.parametrize("slurm", unpacked("trixie"))


def test_the_cluster_has_the_unpacked_version(cluster, slurm):
    versions = {cluster.version(), cluster.run("n1", ["slurmd", "-V"], user="root").stdout.split()[-1]}
    assert versions == {version_of(slurm)}
