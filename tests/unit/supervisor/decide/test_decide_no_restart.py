"""Failures that a restart does not fix: the same exception at the same place, or no progress."""

import pytest
from story import BROKEN, TROUBLE, Story

from echelon.supervisor.state import CutOff, Ending, Outcome, Phase, PhaseTimedOut, RanksHung


def test_fatal_node_problem_ends_the_run_with_its_message():
    story = Story(restarts=3).run().hear(0, TROUBLE).stopped()
    assert story.outcome == BROKEN
    assert story.state.restarts_used == 0


def test_cut_off_supervisor_requeues_without_using_a_requeue():
    story = Story(restarts=3).run().tell(CutOff("host0", (1,), "down")).stopped()
    reason = "host0 is cut off: neither host1 nor the scheduler answers (down)"
    assert story.outcome == Outcome(ending=Ending.REQUEUED, exit_code=75, reason=reason, uses_requeue=False)


def test_the_same_exception_at_the_same_step_twice_stops():
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error="bad batch", step=7)
    assert story.outcome.reason == "same exception at the same step twice; not restarting"
    assert story.state.restarts_used == 1


@pytest.mark.parametrize(("error", "step"), [("bad batch", 8), ("no memory", 7)])
def test_different_step_or_exception_allows_a_restart(error, step):
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error=error, step=step)
    assert story.generation == 2


def test_the_same_exception_after_another_one_stops():
    story = Story(restarts=9).run()
    for error in ("a", "b"):
        story.progress(step=story.generation).die(error=error, step=7).again()
    story.progress(step=2).die(error="a", step=7)
    assert story.outcome.reason == "same exception at the same step twice; not restarting"


def test_same_signal_twice_is_not_a_repetition():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9)
    assert story.generation == 2


def test_three_generations_without_progress_stop():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9).again().die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"
    assert story.state.restarts_used == 2


def test_three_generations_that_repeat_the_same_steps_stop():
    story = Story(restarts=9).run()
    for _ in range(3):
        story.progress(step=10, active=True).die(code=-9).again()
    assert story.generation == 3, "the first of them did reach a new step"
    story.progress(step=10, active=True).die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_generations_with_many_unsaved_steps_are_progress():
    story = Story(restarts=9).run()
    for _ in range(6):
        story.progress(step=0).progress(step=100, active=True).die(code=-9).again()
    assert story.generation == 6


def test_script_that_restores_itself_and_dies_soon_makes_no_progress():
    story = Story(restarts=9).run().progress(step=400).progress(step=501).die(code=-9)
    for _ in range(3):
        story.again().progress(step=500).die(code=-9, step=501)
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_a_generation_that_never_had_all_ranks_does_not_count():
    story = Story(restarts=9).run()
    for _ in range(5):
        story.tell(RanksHung(story.generation, "rank 3 did not start", incomplete=True))
        story.tell(PhaseTimedOut(Phase.COLLECTING_EVIDENCE)).stopped().again()
    assert (story.generation, story.state.idle_generations) == (5, 0)


def test_further_step_resets_the_count():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9).again()
    story.progress(step=1).die(code=-9)
    assert story.state.idle_generations == 0
    story.again().die(code=-9).again().die(code=-9).again().die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"
    assert story.state.restarts_used == 5


def test_new_saved_step_is_progress_below_the_best_reported_step():
    story = Story(restarts=9).run().progress(step=100).die(code=-9).again()
    for saved in (50, 60, 70):
        story.progress(step=saved, committed=saved).die(code=-9).again()
    assert story.generation == 4


def test_unsaved_steps_do_not_count_if_the_script_saves():
    story = Story(restarts=9).run().progress(step=10, committed=10).die(code=-9).again()
    for step in (20, 30, 40):
        story.progress(step=step, committed=10, active=True).die(code=-9).again()
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_progress_after_the_last_heartbeat_counts():
    story = Story(restarts=9).run()
    for step in (1, 2, 3, 4):
        story.die(code=-9, step=step).again()
    assert story.generation == 4


def test_output_or_cpu_time_is_progress_without_steps():
    story = Story(restarts=9).run()
    for _ in range(5):
        story.progress(active=True).die(code=-9).again()
    assert story.generation == 5


def test_a_step_is_never_taken_back():
    story = Story().run().progress(5).progress(3).progress(None)
    assert story.state.step == 5
