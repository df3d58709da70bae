"""A record behaves like a frozen dataclass with keyword arguments."""

import dataclasses
from dataclasses import dataclass, field, replace
from functools import cached_property

import pytest

from echelon.record import record


class Body:
    rank: int
    host: str = "node0"
    lines: dict[str, int] = field(default_factory=dict)
    note: str = field(default="", compare=False)
    secret: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        return f"{self.rank} on {self.host}"


Record = record(type("Exit", (Body,), dict(Body.__dict__)))
Reference = dataclass(frozen=True, kw_only=True)(type("Exit", (Body,), dict(Body.__dict__)))
CASES = [
    {"rank": 1},
    {"rank": 1, "host": "n7"},
    {"rank": 2, "lines": {"a": 1}},
    {"rank": 1, "note": "x"},
    {"rank": 1, "secret": "abc"},
]


@pytest.mark.parametrize("values", CASES, ids=repr)
def test_values_and_text_are_those_of_a_dataclass(values):
    ours, theirs = Record(**values), Reference(**values)
    assert [getattr(ours, one.name) for one in dataclasses.fields(Record)] == list(dataclasses.astuple(theirs))
    assert repr(ours) == repr(theirs)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours.place == theirs.place


@pytest.mark.parametrize("first", CASES, ids=repr)
@pytest.mark.parametrize("second", CASES, ids=repr)
def test_equality_is_that_of_a_dataclass(first, second):
    assert (Record(**first) == Record(**second)) == (Reference(**first) == Reference(**second))


def test_records_of_different_classes_are_never_equal():
    @record
    class First:
        rank: int

    @record
    class Second:
        rank: int

    assert First(rank=1) != Second(rank=1)
    assert First(rank=1) != 1


def test_equal_records_have_the_same_hash():
    @record
    class Place:
        rank: int
        host: str = "node0"

    assert {Place(rank=1), Place(rank=1, host="node0")} == {Place(rank=1)}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "missing arguments of Exit: rank"),
        ({"rank": 1, "hots": "n1", "a": 1}, "unknown arguments of Exit: a, hots"),
    ],
    ids=repr,
)
def test_wrong_arguments_are_refused(values, sentence):
    with pytest.raises(TypeError, match=sentence):
        Record(**values)


def test_positional_arguments_are_refused():
    with pytest.raises(TypeError):
        Record(1)


def test_a_record_cannot_be_changed():
    one = Record(rank=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.rank = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.rank
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.other = 2


def test_replace_and_the_dataclass_functions_work():
    assert replace(Record(rank=1, host="n1"), rank=2) == Record(rank=2, host="n1")
    assert dataclasses.is_dataclass(Record)
    assert [one.name for one in dataclasses.fields(Record)] == ["rank", "host", "lines", "note", "secret"]


def test_each_record_has_its_own_default_dict():
    assert Record(rank=1).lines is not Record(rank=1).lines


def test_a_cached_property_does_not_change_equality():
    @record
    class Place:
        rank: int

        @cached_property
        def twice(self) -> int:
            return 2 * self.rank

    used = Place(rank=2)
    assert used.twice == 4
    assert used == Place(rank=2)
    assert hash(used) == hash(Place(rank=2))


def test_a_derived_record_has_the_fields_of_both():
    @record
    class Base:
        rank: int

    @record
    class Derived(Base):
        host: str = "n1"

    assert repr(Derived(rank=1)).endswith("Derived(rank=1, host='n1')")
    assert Derived(rank=1) != Base(rank=1)


def test_post_init_runs_with_all_values():
    @record
    class Checked:
        rank: int

        def __post_init__(self) -> None:
            if self.rank < 0:
                raise ValueError("rank")

    assert Checked(rank=0).rank == 0
    with pytest.raises(ValueError, match="rank"):
        Checked(rank=-1)
