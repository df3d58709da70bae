"""Names of checkpoints: parsing, order, and names of unfinished folders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.train.checkpoint import file_format
from echelon.train.checkpoint.file_format import CheckpointName

any_name = st.builds(CheckpointName, st.integers(0, 10**15), st.integers(0, 10**6))


@given(any_name)
def test_every_name_is_read_back(name):
    assert file_format.parse_checkpoint_name(str(name)) == name
    assert not file_format.is_leftover(str(name))


@given(st.text(max_size=30))
def test_parsed_name_is_spelled_as_its_text(text):
    name = file_format.parse_checkpoint_name(text)
    assert name is None or str(name) == text


@pytest.mark.parametrize(
    "text",
    ["step-1", "step-0000000a", "step-00000001.0", "step-00000001.", ".tmp-1-ab", "step-000000001", "step-00000001\n"],
)
def test_other_texts_are_not_checkpoint_names(text):
    assert file_format.parse_checkpoint_name(text) is None


def test_names_sort_by_step_and_take():
    assert [CheckpointName(1), CheckpointName(1).next_take, CheckpointName(2)] == sorted(
        [CheckpointName(2), CheckpointName(1, 1), CheckpointName(1)]
    )


def test_unfinished_folders_are_recognized_by_name():
    assert file_format.is_leftover(file_format.temporary_folder_name(5, "ab"))
    assert file_format.is_leftover(file_format.discarded_folder_name("cd"))
    assert file_format.is_leftover(file_format.probe_folder_name("ef"))
    assert not file_format.is_leftover(file_format.LOCK_FILE)
