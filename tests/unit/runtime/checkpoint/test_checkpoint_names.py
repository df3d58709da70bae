"""Names of checkpoints: what is one, what is debris, and which is newer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.runtime.checkpoint import names
from echelon.runtime.checkpoint.names import Name

any_name = st.builds(Name, st.integers(0, 10**15), st.integers(0, 10**6))


@given(any_name)
def test_every_name_is_read_back(name):
    assert names.parse(str(name)) == name
    assert not names.is_debris(str(name))


@given(st.text(max_size=30))
def test_only_names_spelled_by_us_are_names(text):
    name = names.parse(text)
    assert name is None or str(name) == text


@pytest.mark.parametrize(
    "text",
    ["step-1", "step-0000000a", "step-00000001.0", "step-00000001.", ".tmp-1-ab", "step-000000001", "step-00000001\n"],
)  # fmt: skip
def test_what_is_no_checkpoint(text):
    assert names.parse(text) is None


def test_a_later_step_is_newer_and_so_is_a_later_take():
    assert [Name(1), Name(1).next_take, Name(2)] == sorted([Name(2), Name(1, 1), Name(1)])


def test_debris_is_told_from_the_rest():
    assert names.is_debris(names.temporary(5, "ab"))
    assert names.is_debris(names.discarded("cd"))
    assert names.is_debris(names.probe("ef"))
    assert not names.is_debris(names.LOCK)
