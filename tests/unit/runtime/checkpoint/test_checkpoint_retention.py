"""Which checkpoints may go: never so many that fewer than two good ones are left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.runtime.checkpoint.names import Name
from echelon.runtime.checkpoint.retention import LEAST, Kept, Retention, dispensable

present = st.lists(
    st.builds(
        Kept,
        name=st.builds(Name, st.integers(0, 50), st.integers(0, 2)),
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
def test_what_is_promised_stays(kept, rule):
    gone = set(dispensable(kept, rule))
    good = [one.name for one in kept if one.good]
    stays = [name for name in good if name not in gone]
    assert len(stays) >= min(LEAST, len(good))
    assert good[-rule.last :] == stays[-rule.last :], "the newest good ones"
    assert not gone & {one.name for one in kept if one.good and rule.every and one.name.step % rule.every == 0}
    scores = [one.score for one in kept if one.good and one.score is not None]
    if rule.best and scores:
        best = (min if rule.best == "min" else max)(scores)
        assert any(one.score == best for one in kept if one.good and one.name not in gone)


@given(present, rules)
def test_nothing_is_kept_without_a_reason(kept, rule):
    gone = dispensable(kept, rule)
    assert gone == [one.name for one in kept if one.name in gone], "oldest first"
    after = [one for one in kept if one.name not in gone]
    assert dispensable(after, rule) == [], "once is enough"
    if rule.every is None and rule.best is None:
        assert sum(one.good for one in after) <= rule.last


def test_a_damaged_one_counts_for_nothing_and_goes_with_time():
    kept = [Kept(name=Name(step), good=step != 2) for step in range(1, 6)]
    assert dispensable(kept, Retention(last=3)) == [Name(1), Name(2)]
    assert dispensable(kept[:3], Retention(last=2)) == []


def test_the_order_is_that_of_commits_and_not_of_steps():
    kept = [Kept(name=Name(step), good=True, score=1.0) for step in (500, 1000, 1500, 2000, 600)]
    assert dispensable(kept, Retention(last=3)) == [Name(500), Name(1000)]
    assert dispensable(kept, Retention(last=2, best="min")) == [Name(500), Name(1000), Name(1500)]


def test_what_the_newest_came_from_stays():
    kept = [Kept(name=Name(step), good=True) for step in (500, 1000, 1500, 2000)]
    back = Kept(name=Name(600), good=True, parent="step-00000500")
    assert dispensable([*kept, back], Retention(last=3)) == [Name(1000)]
    after = Kept(name=Name(700), good=True, parent="step-00000600")
    assert dispensable([*kept, back, after], Retention(last=3)) == [Name(500), Name(1000), Name(1500)]


@pytest.mark.parametrize("options", [{"last": 1}, {"last": 0}, {"every": 0}, {"best": "most"}])
def test_what_makes_no_sense_is_refused(options):
    with pytest.raises(ConfigError):
        Retention(**options)
