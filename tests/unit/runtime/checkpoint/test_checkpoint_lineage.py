"""What is tried after a damaged checkpoint: what it came from, before anything of an abandoned way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.runtime.checkpoint.lineage import Descent, by_descent
from echelon.runtime.checkpoint.names import Name


def name_of(step):
    return str(Name(step)) if isinstance(step, int) else step


def commits(*pairs):
    """Steps, each with the step that it came from, in the order of commits."""
    return [Descent(name=Name(step), parent=name_of(parent)) for step, parent in pairs]


@pytest.mark.parametrize(
    ("found", "tried"),
    [
        ([], []),
        ([(1, "")], [1]),
        ([(1, ""), (2, 1), (3, 2)], [3, 2, 1]),
        ([(500, ""), (1000, 500), (1500, 1000), (600, 500)], [600, 500, 1500, 1000]),
        ([(500, ""), (1000, 500), (600, 500), (700, 600)], [700, 600, 500, 1000]),
        ([(500, ""), (1000, 500), (600, 500), (1100, 1000)], [1100, 1000, 500, 600]),
        ([(500, ""), (1000, 500), (100, ""), (200, 100)], [200, 100, 1000, 500]),
    ],
)
def test_the_last_commit_comes_first_and_then_what_it_came_from(found, tried):
    assert [name.step for name in by_descent(commits(*found))] == tried


@pytest.mark.parametrize("unsaid", [None, "step-1", "../step-00000500"])
def test_where_nobody_says_it_is_the_commit_before(unsaid):
    assert [name.step for name in by_descent(commits((500, ""), (1000, unsaid), (600, unsaid)))] == [600, 1000, 500]


def test_an_old_folder_that_new_commits_are_added_to():
    found = commits((500, None), (1000, None), (1500, None), (1100, 1000), (1200, 1100))
    assert [name.step for name in by_descent(found)] == [1200, 1100, 1000, 500, 1500]


def test_where_the_parent_was_removed_nothing_beyond_its_step_is_taken_for_an_ancestor():
    milestones = commits((500, ""), (1000, 900), (1500, 1400), (2000, 1900), (1200, 1100), (1300, 1200))
    assert [name.step for name in by_descent(milestones)] == [1300, 1200, 1000, 500, 2000, 1500]


def test_a_name_that_was_given_anew_after_the_child_is_not_its_parent():
    found = [
        Descent(name=Name(400), parent=""),
        Descent(name=Name(600), parent="step-00000500"),
        Descent(name=Name(500), parent="step-00000400"),
        Descent(name=Name(700), parent="step-00000600"),
    ]
    assert [name.step for name in by_descent(found)] == [700, 600, 400, 500]


def test_takes_of_one_step_are_told_apart():
    found = [
        Descent(name=Name(5), parent=""),
        Descent(name=Name(5, 1), parent="step-00000005"),
        Descent(name=Name(6), parent="step-00000005"),
    ]
    assert by_descent(found) == [Name(6), Name(5), Name(5, 1)]


steps = st.integers(0, 9)
parents = st.one_of(st.none(), st.just(""), steps.map(name_of), st.text(max_size=3))


@given(st.lists(st.tuples(steps, parents), unique_by=lambda pair: pair[0]))
def test_each_is_tried_once_whatever_parents_say_and_the_last_commit_first(pairs):
    found = commits(*pairs)
    tried = by_descent(found)
    assert sorted(tried) == sorted(one.name for one in found)
    assert tried[:1] == [one.name for one in found[-1:]]
