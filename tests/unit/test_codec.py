"""Dataclasses to JSON and back, and what is refused on the way."""

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.codec import decode, encode


class Colour(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class Thing:
    name: str
    share: float = 0.0
    on: bool = False
    colour: Colour = Colour.RED
    lasts: timedelta = timedelta(0)
    limit: timedelta | None = None
    maybe: int | None = None
    words: tuple[str, ...] = ()
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    table: Mapping[str, str] = field(default_factory=dict)


durations = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=5000))
text = st.text(st.characters(codec=None))  # lone surrogates included
things = st.builds(
    Thing,
    name=text,
    share=st.floats(allow_nan=False),
    on=st.booleans(),
    colour=st.sampled_from(Colour),
    lasts=durations,
    limit=st.none() | durations,
    maybe=st.none() | st.integers(),
    words=st.lists(text).map(tuple),
    inner=st.builds(Inner, count=st.integers()),
    inners=st.lists(st.builds(Inner, count=st.integers())).map(tuple),
    table=st.dictionaries(text, text),
)


@given(things)
def test_values_survive_encoding_to_json(thing):
    assert decode(Thing, json.loads(json.dumps(encode(thing)))) == thing


def test_fields_that_are_left_out_get_their_default():
    assert decode(Thing, {"name": "x"}) == Thing(name="x")


def test_integer_is_accepted_as_a_float():
    share = decode(Thing, {"name": "x", "share": 1}).share
    assert (share, type(share)) == (1.0, float)


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"nmae": "x"}, "nmae"),
        ({"name": 3}, "Thing.name"),
        ({"name": None}, "Thing.name"),
        ({"share": "1"}, "Thing.share"),
        ({"share": True}, "Thing.share"),
        ({"on": 1}, "Thing.on"),
        ({"maybe": True}, "Thing.maybe"),
        ({"maybe": 1.0}, "Thing.maybe"),
        ({"lasts": "1h"}, "Thing.lasts"),
        ({"words": "text"}, "Thing.words"),
        ({"words": [1]}, "Thing.words"),
        ({"inner": []}, "Thing.inner"),
        ({"inner": {"count": "1"}}, "Thing.inner.count"),
        ({"inners": [{"cuont": 1}]}, "Thing.inners"),
        ({"table": {"a": 1}}, "Thing.table.a"),
        ({"table": []}, "Thing.table"),
        ({"colour": "green"}, "Thing.colour"),
        ({"colour": 3}, "Thing.colour"),
    ],
    ids=repr,
)
def test_wrong_field_is_named(fields, where):
    with pytest.raises(ValueError, match=where):
        decode(Thing, {"name": "x", **fields})


@pytest.mark.parametrize("seconds", [1e300, float("inf"), float("nan")])
def test_overlong_duration_is_refused(seconds):
    with pytest.raises(ValueError):
        decode(Thing, {"name": "x", "lasts": seconds})


def test_a_missing_field_is_named():
    with pytest.raises(ValueError, match="name"):
        decode(Thing, {})


@pytest.mark.parametrize("data", [None, [], 3, "text"])
def test_value_that_is_not_an_object_is_refused(data):
    with pytest.raises(ValueError, match="Thing"):
        decode(Thing, data)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.BLUE, "blue"),
        (timedelta(minutes=1.5), 90.0),
        ((1, (2, 3)), [1, [2, 3]]),
        (frozenset({1}), [1]),
        ({"a": Inner(count=2)}, {"a": {"count": 2}}),
        (None, None),
    ],
)
def test_values_become_plain(value, plain):
    assert encode(value) == plain
