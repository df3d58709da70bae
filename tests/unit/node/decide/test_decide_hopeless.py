"""Where no restart will help: the same exception at the same place, or no progress."""

import pytest
from story import BROKEN, Story

from echelon.node.situation import Hopeless, Progressed


def test_what_no_restart_will_mend_ends_the_run_with_its_own_words():
    story = Story(restarts=3).run().tell(Hopeless(BROKEN)).stopped()
    assert story.outcome == BROKEN
    assert story.state.restarts_used == 0


def test_the_same_exception_at_the_same_step_twice_stops():
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error="bad batch", step=7)
    assert story.outcome.reason.startswith("the same exception came twice at the same place")
    assert story.state.restarts_used == 1


@pytest.mark.parametrize(("error", "step"), [("bad batch", 8), ("no memory", 7)])
def test_the_same_exception_at_another_step_or_another_one_at_the_same_goes_on(error, step):
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error=error, step=step)
    assert story.generation == 2


def test_the_same_exception_after_another_one_goes_on():
    story = Story(restarts=9).run()
    for error in ("a", "b", "a"):
        story.tell(Progressed(story.generation, step=story.generation)).die(error=error, step=7).again()
    assert story.generation == 3


def test_the_same_signal_twice_says_nothing_about_the_place():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9)
    assert story.generation == 2


def test_three_generations_without_progress_stop():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9).again().die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"
    assert story.state.restarts_used == 2


def test_three_generations_that_repeat_the_same_steps_stop():
    story = Story(restarts=9).run()
    for _ in range(3):
        story.tell(Progressed(story.generation, step=10, moved=True)).die(code=-9).again()
    assert story.generation == 3, "the first of them did reach a new step"
    story.tell(Progressed(3, step=10, moved=True)).die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_a_further_step_starts_the_count_anew():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9).again()
    story.tell(Progressed(2, step=1)).die(code=-9)
    assert story.state.idle_generations == 0
    story.again().die(code=-9).again().die(code=-9).again().die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"
    assert story.state.restarts_used == 5


def test_a_new_saved_step_is_progress_even_if_more_was_once_reported_and_never_saved():
    story = Story(restarts=9).run().tell(Progressed(0, step=100)).die(code=-9).again()
    for saved in (50, 60, 70):
        story.tell(Progressed(story.generation, step=saved, committed=saved)).die(code=-9).again()
    assert story.generation == 4


def test_steps_that_were_reported_but_not_saved_are_no_progress_where_the_script_saves():
    story = Story(restarts=9).run().tell(Progressed(0, step=10, committed=10)).die(code=-9).again()
    for step in (20, 30, 40):
        story.tell(Progressed(story.generation, step=step, committed=10, moved=True)).die(code=-9).again()
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_what_a_rank_did_between_the_last_pulse_and_its_exit_counts():
    story = Story(restarts=9).run()
    for step in (1, 2, 3, 4):
        story.die(code=-9, step=step).again()
    assert story.generation == 4


def test_output_or_cpu_time_is_progress_where_no_steps_are_reported():
    story = Story(restarts=9).run()
    for _ in range(5):
        story.tell(Progressed(story.generation, moved=True)).die(code=-9).again()
    assert story.generation == 5


def test_a_step_is_never_taken_back():
    story = Story().run().tell(Progressed(0, 5), Progressed(0, 3), Progressed(0, None))
    assert story.state.step == 5
