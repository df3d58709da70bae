"""torch's own analyzer names the same ranks as ours on recordings that it can read."""

import argparse
import copy
import importlib

import pytest
from hang_samples import recorded_ranks, recording

from echelon.diagnosis.matching import find_mismatch, find_waits

OPTIONS = argparse.Namespace(
    verbose=False, just_print_entries=False, allow_incomplete_ranks=False, mismatch_cap=10, print_stack_trace=False
)


@pytest.fixture(scope="module")
def builder():
    return importlib.import_module("torch.distributed.flight_recorder.components.builder")


def incomplete_collectives(builder, name):
    """What torch says about the recording, with the group's members, which gloo does not record."""
    dumps = copy.deepcopy([rank["flight"] for rank in recording(name)])
    members = str(list(range(len(dumps))))
    for rank, dump in enumerate(dumps):
        dump["rank"] = rank
        dump["pg_config"] = {"0": {"name": "0", "desc": "default_pg", "ranks": members}}
    database = builder.build_db({str(dump["rank"]): dump for dump in dumps}, OPTIONS, dumps[0]["version"])
    return [found for found in database.collectives if found.missing_ranks or found.mismatch_collectives]


@pytest.mark.parametrize("name", ["missing", "backward", "lock", "condition", "data_loader", "spin", "file_open"])
def test_torch_names_the_same_missing_ranks(builder, name):
    (theirs,) = incomplete_collectives(builder, name)
    ours = find_waits(recorded_ranks(name))[0]
    assert (theirs.collective_seq_id, theirs.missing_ranks) == (ours.collective.sequence, set(ours.missing))


def test_torch_names_the_same_mismatch(builder):
    (theirs,) = incomplete_collectives(builder, "mismatched_operation")
    ours = find_mismatch(recorded_ranks("mismatched_operation"))
    assert theirs.collective_seq_id == ours.calls[0].collective.sequence
    assert set(theirs.mismatch_collectives) == set(ours.calls[-1].ranks)


@pytest.mark.parametrize("name", ["past", "monitored"])
def test_torch_analyzer_finds_no_wait(builder, name):
    assert incomplete_collectives(builder, name) == []
    assert find_waits(recorded_ranks(name)) == ()
