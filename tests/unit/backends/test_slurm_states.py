"""Slurm's states and reasons, and their sentences."""

import pytest

from echelon.backends.slurm.query import job_status
from echelon.backends.slurm.states import REASONS, STATE_SENTENCES, STATES, reason_sentence
from echelon.states import JobState

# The states of Slurm 22.05 to 24.11, as squeue(1) and sacct(1) list them.
ALL_STATES = (
    "BOOT_FAIL CANCELLED COMPLETED CONFIGURING COMPLETING DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY "
    "PENDING POWER_UP_NODE PREEMPTED RECONFIG_FAIL RUNNING RESV_DEL_HOLD REQUEUE_FED REQUEUE_HOLD REQUEUED RESIZING "
    "REVOKED SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT EXPEDITING"
)


@pytest.mark.parametrize("word", ALL_STATES.split())
def test_every_state_of_slurm_is_known(word):
    assert word in STATES


def test_only_completed_is_success():
    assert [word for word, state in STATES.items() if state is JobState.SUCCEEDED] == ["COMPLETED"]


@pytest.mark.parametrize("word", STATE_SENTENCES)
def test_only_known_states_have_sentences(word):
    assert word in STATES


def test_every_failure_except_failed_has_a_sentence():
    failures = {word for word, state in STATES.items() if state is JobState.FAILED}
    assert failures - set(STATE_SENTENCES) == {"FAILED"}


@pytest.mark.parametrize("word", ["FLYING", "SOMETHING_NEW", ""])
def test_unknown_state_counts_as_running_and_is_shown(word):
    told = job_status(word)
    assert not told.state.ended
    assert told.native == word
    assert word in told.reason


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "waiting for nodes to become free"),
        ("Priority", "higher priority"),
        ("Dependency", "depends on"),
        ("DependencyNeverSatisfied", "never start"),
        ("JobHeldUser", "scontrol release"),
        ("BeginTime", "has not been reached"),
        ("PartitionTimeLimit", "that much time"),
        ("ReqNodeNotAvail", "down, drained or reserved"),
        ("ReqNodeNotAvail, UnavailableNodes:n[2-3]", "(UnavailableNodes:n[2-3])"),
        ("ReqNodeNotAvail,_May_be_reserved_for_other_job", "down, drained or reserved (May be reserved for other job)"),
        ("QOSMaxGRESPerUser", "the limit of its QOS on GPUs is reached (QOSMaxGRESPerUser)"),
        ("QOSMaxCpuPerUserLimit", "the limit of its QOS on CPUs"),
        ("QOSMaxJobsPerUserLimit", "the limit of its QOS on jobs"),
        ("QOSMaxSubmitJobPerUserLimit", "the limit of its QOS on submitted jobs"),
        ("QOSMaxWallDurationPerJobLimit", "the limit of its QOS on time"),
        ("QOSGrpNodeLimit", "the limit of its QOS on nodes"),
        ("QOSMinGRES", "the limit of its QOS on GPUs"),
        ("AssocGrpCPURunMinutesLimit", "the limit of its account on CPU time"),
        ("AssocGrpCpuLimit", "the limit of its account on CPUs"),
        ("AssocGrpGRES", "the limit of its account on GPUs"),
        ("AssocGrpGRESMinutes", "the limit of its account on GPU time"),
        ("AssocMaxJobsLimit", "the limit of its account on jobs"),
        ("AssocMaxMemPerJob", "the limit of its account on memory"),
        ("MaxGRESPerAccount", "the limit of its account or QOS on GPUs"),
        ("None", ""),
    ],
)
def test_reasons_are_sentences(reason, words):
    assert words in reason_sentence(reason)


@pytest.mark.parametrize("reason", ["SomethingNew", "Some words, and more", "", "QOSGrpFlavour"])
def test_unknown_reason_is_shown_unchanged(reason):
    assert reason_sentence(reason) == reason


def test_long_reason_becomes_a_sentence():
    long = "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"
    assert reason_sentence(long) == long.replace("_", " ")


@pytest.mark.parametrize("reason", REASONS)
def test_sentences_end_without_a_full_stop(reason):
    assert not REASONS[reason].endswith(".")
