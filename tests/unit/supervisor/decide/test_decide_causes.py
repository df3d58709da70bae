"""The cause of a death and the failures of all attempts decide what happens next."""

import pytest
from story import SIGTERM, Story, gone, hello

from echelon.diagnosis.causes import Cause
from echelon.diagnosis.death_evidence import DeathEvidence, MemoryFacts
from echelon.diagnosis.history import Attempt, Failure, History
from echelon.supervisor.gathering import initial_decision
from echelon.supervisor.state import (
    AgentLost,
    CancelRequested,
    EndAgent,
    Ending,
    NoticeDue,
    Phase,
    PhaseTimedOut,
    ReportFault,
    StartAgent,
    StartRanks,
    TimeLimitReached,
)
from echelon.wire.faults import Fault, Loss
from echelon.wire.messages import Exited
from echelon.wire.reports import ErrorRecord, FatalNodeProblem

AWAY = {"lost_host_is_reusable": False}
KILLED_FOR_MEMORY = DeathEvidence(
    code=-9, memory=MemoryFacts(limit=1 << 30, peak=1 << 30, kills_before=0, kills_after=1)
)


def raises(story, kind, message, rank=0, **fields):
    """A rank raises, and everyone has stopped."""
    error = ErrorRecord(time=1.0, type=kind, message=message, traceback="")
    exit = gone(rank, 1, **fields)
    exit = type(exit)(**{**vars(exit), "error": error})
    return story.hear(0, Exited(generation=story.generation, exit=exit)).stopped()


def with_history(story, *failures):
    story.state, story.last = initial_decision(story.rules, History(attempts=(Attempt(failures=failures),)))
    return story


# Causes that a restart does not change


@pytest.mark.parametrize(
    ("kind", "message", "reason", "hint"),
    [
        ("MemoryError", "", "memory allocation failed", "--mem"),
        ("OSError", "[Errno 28] No space left on device: '/scratch/a'", "no space on the file system", "free space"),
        ("OSError", "[Errno 24] Too many open files", "too many open files", "ulimit -n"),
        ("ModuleNotFoundError", "No module named 'einops'", "missing module", "install it"),
        ("torch.OutOfMemoryError", "CUDA out of memory.", "out of GPU memory", "smaller batch"),
    ],
)
def test_a_missing_resource_stops_the_run_at_once(kind, message, reason, hint):
    outcome = raises(Story(restarts=5, requeues=5).run(), kind, message).outcome
    assert (outcome.ending, outcome.reason) == (Ending.FAILED, f"{reason}: a restart would fail in the same way")
    assert hint in outcome.hint
    assert "--restarts" not in outcome.hint


def test_a_kill_for_memory_stops_and_names_the_limit():
    outcome = Story(restarts=5).run().die(code=-9, evidence=KILLED_FOR_MEMORY).outcome
    assert (outcome.ending, outcome.exit_code) == (Ending.FAILED, 137)
    assert outcome.fault.sentence.startswith("the kernel killed rank 0 on host0 for memory: limit 1")
    assert "--mem SIZE asks for more memory per node than" in outcome.hint


def test_a_step_killed_for_memory_stops_at_once():
    failure = Failure(cause=Cause.STEP_MEMORY, host="host1")
    why = Fault(sentence="the step on host1 was killed for memory", failure=failure, hint="--mem SIZE")
    story = Story(restarts=5, requeues=5, spare_nodes=1, **AWAY).run().tell(AgentLost(1, Loss.STEP, why)).stopped()
    assert (story.outcome.ending, story.outcome.hint) == (Ending.FAILED, "--mem SIZE")


def test_fault_has_its_rule_and_change():
    (report,) = raises(Story(restarts=5).run(), "MemoryError", "").done(ReportFault)
    assert report.fault.rule == "memory allocation failed: a restart would fail in the same way"
    assert (
        report.fault.change
        == "do what `try` says; echelon resume {run} continues with the same settings, other settings need a new run"
    )


def test_a_restart_has_its_rule_too():
    (report,) = raises(Story(restarts=5).run(), "ValueError", "x", step=3).done(ReportFault)
    assert report.fault.rule == "exception: first failure at this step; restarting"


@pytest.mark.parametrize(
    ("kind", "change"), [("KeyError", "correct the cause"), ("ConnectionError", "--restarts N allows more restarts")]
)
def test_only_a_passing_fault_would_change_with_restarts(kind, change):
    outcome = raises(Story().run(), kind, "x").outcome
    assert (outcome.reason, outcome.fault.rule) == ("--restarts is not set", "--restarts is not set")
    assert outcome.fault.change.startswith(change)


# The failures of all attempts


def test_the_same_exception_in_the_attempt_before_stops():
    old = Failure(cause=Cause.EXCEPTION, signature="ValueError: bad batch #", step=7, host="host0")
    story = with_history(Story(restarts=9, requeues=9), old).run()
    outcome = raises(story, "ValueError", "bad batch 12", step=7).outcome
    assert outcome.reason == "same exception at the same step twice; not restarting"
    assert outcome.ending is Ending.FAILED


def test_another_step_in_the_attempt_before_allows_a_restart():
    old = Failure(cause=Cause.EXCEPTION, signature="ValueError: bad batch #", step=6, host="host0")
    story = with_history(Story(restarts=9), old).run()
    assert raises(story, "ValueError", "bad batch 12", step=7).generation == 1


def test_each_failure_is_added_to_the_last_attempt():
    old = Failure(cause=Cause.KILLED)
    story = with_history(Story(restarts=9), old).run().die(code=-9, step=4)
    first, second = story.state.history.attempts
    assert first.failures == (old,)
    assert second.failures == (Failure(cause=Cause.KILLED, signature="killed by SIGKILL", step=4, host="host0"),)


# A delay before the next start


def backing_off():
    return Story(restarts=9).run().die(code=-9).again().die(code=-9)


def test_the_first_restart_has_no_delay():
    assert Story(restarts=9).run().die(code=-9).phase is Phase.BINDING


def test_unknown_failures_in_a_row_are_restarted_after_a_delay():
    story = backing_off()
    assert (story.phase, story.state.delay, story.generation) == (Phase.BACKING_OFF, 1.0, 2)
    assert story.tell(PhaseTimedOut(Phase.BACKING_OFF)).phase is Phase.BINDING
    assert (story.state.delay, story.state.fault) == (0.0, None)
    assert story.bind().done(StartRanks)[-1].bound.generation == 2


def test_a_new_step_ends_the_row():
    story = Story(restarts=9).run().die(code=-9, step=3).again().die(code=-9, step=4)
    assert story.phase is Phase.BINDING


def test_a_cancel_ends_the_delay():
    story = backing_off().tell(CancelRequested(SIGTERM))
    assert (story.phase, story.outcome.ending) == (Phase.ENDED, Ending.CANCELLED)


def test_the_time_limit_ends_the_delay():
    story = Story(restarts=9, requeues=1).run().die(code=-9).again().die(code=-9).tell(TimeLimitReached())
    assert story.outcome.ending is Ending.REQUEUED


def test_a_notice_ends_the_delay_and_is_given_to_the_ranks():
    story = backing_off().tell(NoticeDue())
    assert story.phase is Phase.BINDING
    assert story.state.notice


def test_after_a_notice_there_is_no_delay():
    story = Story(restarts=9).run().tell(NoticeDue()).die(code=-9).again().die(code=-9)
    assert story.phase is Phase.BINDING


def test_a_fatal_problem_ends_the_delay():
    story = backing_off().hear(0, FatalNodeProblem(what="no torch", why="", hint=""))
    assert story.outcome.ending is Ending.FAILED


def test_an_agent_that_dies_in_the_delay_is_started_after_it():
    story = backing_off().lose(1)
    assert (story.phase, story.last) == (Phase.BACKING_OFF, (EndAgent(1),))
    assert story.tell(PhaseTimedOut(Phase.BACKING_OFF)).last == (StartAgent(1),)
    assert story.hear(1, hello(1)).phase is Phase.BINDING


# Faulty nodes


def broken_gpu(story, rank=2):
    error = ErrorRecord(time=1.0, type="RuntimeError", message="CUDA error: uncorrectable ECC error", traceback="")
    exit = type(gone(rank, 1))(**{**vars(gone(rank, 1)), "error": error, "host": f"host{rank // 2}"})
    return story.hear(rank // 2, Exited(generation=story.generation, exit=exit)).stopped()


def test_a_node_with_a_broken_gpu_is_replaced_by_a_spare():
    story = broken_gpu(Story(spare_nodes=1, **AWAY).run())
    assert story.last[0] == EndAgent(1)
    assert story.bind().state.members == (0, 2)
    assert story.state.restarts_used == 0


def test_without_a_spare_the_job_is_requeued_without_the_node():
    outcome = broken_gpu(Story(requeues=1, **AWAY).run()).outcome
    assert (outcome.ending, outcome.lost_hosts) == (Ending.REQUEUED, ("host1",))


def test_a_rehearsed_node_is_used_again_for_a_restart():
    story = broken_gpu(Story(restarts=1).run())
    assert (story.last[0], story.last[-1]) == (EndAgent(1), StartAgent(1))
    assert story.state.restarts_used == 1


def test_an_agent_that_dies_twice_excludes_its_node():
    story = Story(restarts=9, requeues=1, **AWAY).run().lose(1).stopped()
    assert story.last[-1] == StartAgent(1)
    outcome = story.again().lose(1).stopped().outcome
    assert (outcome.ending, outcome.lost_hosts) == (Ending.REQUEUED, ("host1",))


# Crashes soon after a restore


def crash_after_restore(story, restored):
    name = f"step-{restored:08d}"
    return raises(story, "ValueError", "bad", step=restored + 2, restored=restored, restored_name=name)


def test_three_crashes_after_a_restore_start_from_an_older_one():
    story = Story(restarts=9).run().progress(step=25, committed=20).die(code=-9).again()
    for _ in range(3):
        assert story.done(StartRanks)[-1].rejected_checkpoint == ""
        crash_after_restore(story, 20).again()
    assert story.done(StartRanks)[-1].rejected_checkpoint == "step-00000020"
    story.die(code=-9).again()
    assert story.done(StartRanks)[-1].rejected_checkpoint == "step-00000020", (
        "that generation may have ended before it loaded"
    )
    crash_after_restore(story, 10)
    assert story.outcome.reason.endswith("also after going back one checkpoint")


def test_next_attempt_also_rejects_the_checkpoint():
    bad = Failure(
        cause=Cause.EXCEPTION, signature="ValueError: bad", step=22, restored=20, restored_name="step-00000020"
    )
    story = with_history(Story(restarts=9), bad, bad, bad).run()
    assert story.done(StartRanks)[-1].rejected_checkpoint == "step-00000020"


@pytest.mark.parametrize("kills", [1, 2])
def test_kills_before_do_not_cut_the_way_to_an_older_checkpoint_short(kills):
    story = Story(restarts=9).run().progress(step=25, committed=20).die(code=-9)
    for number in range(kills):
        story.again().progress(step=20, committed=20).die(code=-9, step=20 + number)
    for _ in range(3):
        crash_after_restore(story.again().progress(step=20, committed=20), 20)
    assert story.again().done(StartRanks)[-1].rejected_checkpoint == "step-00000020"
