"""After a damaged checkpoint, its ancestors are tried before checkpoints of an abandoned branch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.train.checkpoint.file_format import CheckpointName
from echelon.train.checkpoint.verify import LineageEntry, order_by_lineage


def name_of(step):
    return str(CheckpointName(step)) if isinstance(step, int) else step


def commits(*pairs):
    """Lineage entries of pairs of a step and its parent's step, in commit order."""
    return [LineageEntry(name=CheckpointName(step), parent=name_of(parent)) for step, parent in pairs]


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
def test_last_commit_and_its_ancestors_come_first(found, tried):
    assert [name.step for name in order_by_lineage(commits(*found))] == tried


@pytest.mark.parametrize("unsaid", [None, "step-1", "../step-00000500"])
def test_unknown_parent_is_the_previous_commit(unsaid):
    assert [name.step for name in order_by_lineage(commits((500, ""), (1000, unsaid), (600, unsaid)))] == [
        600,
        1000,
        500,
    ]


def test_commits_with_parent_after_commits_without():
    found = commits((500, None), (1000, None), (1500, None), (1100, 1000), (1200, 1100))
    assert [name.step for name in order_by_lineage(found)] == [1200, 1100, 1000, 500, 1500]


def test_removed_parent_is_not_replaced_by_a_later_step():
    milestones = commits((500, ""), (1000, 900), (1500, 1400), (2000, 1900), (1200, 1100), (1300, 1200))
    assert [name.step for name in order_by_lineage(milestones)] == [1300, 1200, 1000, 500, 2000, 1500]


def test_name_reused_after_the_child_is_not_its_parent():
    found = [
        LineageEntry(name=CheckpointName(400), parent=""),
        LineageEntry(name=CheckpointName(600), parent="step-00000500"),
        LineageEntry(name=CheckpointName(500), parent="step-00000400"),
        LineageEntry(name=CheckpointName(700), parent="step-00000600"),
    ]
    assert [name.step for name in order_by_lineage(found)] == [700, 600, 400, 500]


def test_takes_of_one_step_are_distinguished():
    found = [
        LineageEntry(name=CheckpointName(5), parent=""),
        LineageEntry(name=CheckpointName(5, 1), parent="step-00000005"),
        LineageEntry(name=CheckpointName(6), parent="step-00000005"),
    ]
    assert order_by_lineage(found) == [CheckpointName(6), CheckpointName(5), CheckpointName(5, 1)]


steps = st.integers(0, 9)
parents = st.one_of(st.none(), st.just(""), steps.map(name_of), st.text(max_size=3))


@given(st.lists(st.tuples(steps, parents), unique_by=lambda pair: pair[0]))
def test_each_checkpoint_is_tried_once_newest_first(pairs):
    found = commits(*pairs)
    tried = order_by_lineage(found)
    assert sorted(tried) == sorted(one.name for one in found)
    assert tried[:1] == [one.name for one in found[-1:]]
