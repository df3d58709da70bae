"""The choice of checkpoints to remove: at least two good ones are always kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.train.checkpoint.file_format import CheckpointName
from echelon.train.checkpoint.retention import MIN_KEPT, CheckpointSummary, Retention, removable_checkpoints

present = st.lists(
    st.builds(
        CheckpointSummary,
        name=st.builds(CheckpointName, st.integers(0, 50), st.integers(0, 2)),
        good=st.booleans(),
        score=st.none() | st.integers(-5, 5).map(float),
    ),
    unique_by=lambda kept: kept.name,
    max_size=20,
)
rules = st.builds(
    Retention,
    last=st.integers(2, 5),
    every=st.none() | st.integers(1, 10),
    best=st.sampled_from([None, "min", "max"]),
)


@given(present, rules)
def test_rules_keep_newest_periodic_and_best(kept, rule):
    gone = set(removable_checkpoints(kept, rule))
    good = [one.name for one in kept if one.good]
    stays = [name for name in good if name not in gone]
    assert len(stays) >= min(MIN_KEPT, len(good))
    assert good[-rule.last :] == stays[-rule.last :], "the newest good ones"
    assert not gone & {one.name for one in kept if one.good and rule.every and one.name.step % rule.every == 0}
    scores = [one.score for one in kept if one.good and one.score is not None]
    if rule.best and scores:
        best = (min if rule.best == "min" else max)(scores)
        assert any(one.score == best for one in kept if one.good and one.name not in gone)


@given(present, rules)
def test_checkpoints_outside_of_the_rules_are_removed(kept, rule):
    gone = removable_checkpoints(kept, rule)
    assert gone == [one.name for one in kept if one.name in gone], "oldest first"
    after = [one for one in kept if one.name not in gone]
    assert removable_checkpoints(after, rule) == [], "once is enough"
    if rule.every is None and rule.best is None:
        assert sum(one.good for one in after) <= rule.last


def test_damaged_one_does_not_count_and_is_removed_later():
    kept = [CheckpointSummary(name=CheckpointName(step), good=step != 2) for step in range(1, 6)]
    assert removable_checkpoints(kept, Retention(last=3)) == [CheckpointName(1), CheckpointName(2)]
    assert removable_checkpoints(kept[:3], Retention(last=2)) == []


def test_commit_order_not_step_order_decides():
    kept = [CheckpointSummary(name=CheckpointName(step), good=True, score=1.0) for step in (500, 1000, 1500, 2000, 600)]
    assert removable_checkpoints(kept, Retention(last=3)) == [CheckpointName(500), CheckpointName(1000)]
    assert removable_checkpoints(kept, Retention(last=2, best="min")) == [
        CheckpointName(500),
        CheckpointName(1000),
        CheckpointName(1500),
    ]


def test_parent_of_the_newest_is_kept():
    kept = [CheckpointSummary(name=CheckpointName(step), good=True) for step in (500, 1000, 1500, 2000)]
    back = CheckpointSummary(name=CheckpointName(600), good=True, parent="step-00000500")
    assert removable_checkpoints([*kept, back], Retention(last=3)) == [CheckpointName(1000)]
    after = CheckpointSummary(name=CheckpointName(700), good=True, parent="step-00000600")
    assert removable_checkpoints([*kept, back, after], Retention(last=3)) == [
        CheckpointName(500),
        CheckpointName(1000),
        CheckpointName(1500),
    ]


@pytest.mark.parametrize("options", [{"last": 1}, {"last": 0}, {"every": 0}, {"best": "most"}])
def test_invalid_rules_are_refused(options):
    with pytest.raises(ConfigError):
        Retention(**options)
