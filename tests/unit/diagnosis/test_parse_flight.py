"""The JSON of torch's flight recorder."""

import json

import pytest
from hang_samples import recording

from echelon.codec import decode, encode
from echelon.diagnosis.evidence import Collective, GroupStatus, RankEvidence
from echelon.diagnosis.flight import MOST_ENTRIES, MOST_GROUPS, parse_flight

GLOO_CONFIG = {"": {"desc": "", "name": "", "ranks": "[]"}}


def raw(sequence, *, operation="gloo:all_reduce", group=("0", "default_pg"), retired=True, **more):
    return {
        "pg_id": 0,
        "process_group": list(group),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": operation,
        "input_sizes": [[4, 5]],
        "output_sizes": [[4, 5]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": retired,
        "is_p2p": False,
        **more,
    }


def dump(*entries, **more):
    return json.dumps({"version": "2.10", "pg_config": GLOO_CONFIG, "pg_status": {}, "entries": list(entries), **more})


def only(*entries, **more):
    return parse_flight(dump(*entries, **more)).collectives[-1]


@pytest.mark.parametrize("name", ["missing", "subgroup", "backward", "mismatched_size", "past", "data_loader"])
def test_recording_is_parsed_as_the_agent_did(name):
    for rank in recording(name):
        evidence, found = decode(RankEvidence, rank["evidence"]), parse_flight(json.dumps(rank["flight"]))
        assert (found.groups, found.collectives) == (evidence.groups, evidence.collectives)


def test_pending_collective_of_a_real_rank():
    found = parse_flight(json.dumps(recording("missing")[0]["flight"]))
    assert found.groups == (GroupStatus(group="0", description="default_pg", last_enqueued=4, last_completed=3),)
    assert found.collectives[-1] == Collective(
        group="0",
        sequence=4,
        operation="all_reduce",
        sizes=((1024, 1024, 3),),
        dtypes=("float32",),
        byte_count=12 << 20,
        pending=True,
    )


def test_evidence_is_unchanged_by_the_codec():
    for rank in recording("data_loader"):
        assert encode(decode(RankEvidence, rank["evidence"])) == {
            **rank["evidence"],
            "process": {"name": "", **rank["evidence"]["process"]},
        }


@pytest.mark.parametrize("data", ["", "[]", "null", "7", "{}", "not json", b"\xff", "[" * 5000, '{"a": 1}'])
def test_other_data_is_not_a_recording(data):
    assert parse_flight(data) is None


@pytest.mark.parametrize(
    "entries",
    [
        None,
        7,
        {},
        [7, None, "x"],
        [{}],
        [{"process_group": 7}],
        [{"process_group": ["a"]}],
        [{"input_sizes": "x"}],
        [{"input_sizes": [[None, "x", -1, 1e400]], "input_dtypes": [7, None]}],
        [{"profiling_name": 7}],
    ],
)
def test_entries_of_an_unknown_form_are_ignored(entries):
    assert parse_flight(json.dumps({"version": "9", "entries": entries})) is not None


def test_rank_without_collectives_has_no_groups():
    found = parse_flight('{"version": "2.10", "pg_config": {}, "pg_status": {}}')
    assert (found.groups, found.collectives) == ((), ())


@pytest.mark.parametrize(
    ("more", "pending"),
    [
        ({"state": "scheduled", "retired": True}, False),
        ({"state": "scheduled", "retired": False}, True),
        ({"state": "started", "retired": False}, True),
        ({"state": "completed", "retired": False}, False),
        ({"state": "completed", "retired": True}, False),
    ],
)
def test_pending_means_not_retired_and_not_completed(more, pending):
    assert only({**raw(3), **more}).pending is pending


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("gloo:all_reduce", "all_reduce"),
        ("nccl:_all_gather_base", "_all_gather_base"),
        ("all_reduce", "all_reduce"),
        ("nccl:recv 1<-0", "recv 1<-0"),
        ("gloo:\x1b[2Jbarrier", "barrier"),
    ],
)
def test_operation_has_no_backend(operation, expected):
    assert only(raw(1, operation=operation)).operation == expected


@pytest.mark.parametrize(
    ("operation", "inputs", "outputs", "expected"),
    [
        ("gloo:all_reduce", [[4]], [[4]], ((4,),)),
        ("gloo:gather", [[2]], [], ((2,),)),
        ("gloo:scatter", [], [[2]], ((2,),)),
        ("nccl:reduce_scatter", [[1], [1]], [[1]], ((1,),)),
        ("nccl:_reduce_scatter_base", [[8]], [[4]], ((4,),)),
        ("gloo:barrier", [], [], ()),
    ],
)
def test_sizes_are_those_common_to_all_ranks(operation, inputs, outputs, expected):
    assert only(raw(1, operation=operation, input_sizes=inputs, output_sizes=outputs)).sizes == expected


@pytest.mark.parametrize(
    ("sizes", "dtypes", "names", "size"),
    [
        ([[1024, 1024, 3]], ["Float"], ("float32",), 12 << 20),
        ([[10], [20]], ["Half"], ("float16",), 60),
        ([[10], [20]], ["Float", "Double"], ("float32", "float64"), 200),
        ([[]], ["Long"], ("int64",), 8),
        ([], [], (), 0),
        ([[3]], ["Float8_e4m3fn"], ("float8_e4m3fn",), 3),
        ([[3]], [], (), 0),
    ],
)
def test_bytes_come_from_shapes_and_dtypes(sizes, dtypes, names, size):
    found = only(raw(1, input_sizes=sizes, input_dtypes=dtypes))
    assert (found.dtypes, found.byte_count) == (names, size)


def test_status_counts_collectives_and_not_messages():
    """gloo's pg_status counts send and recv too, so ranks that sent differently would look late."""
    status = {"0": {"last_enqueued_collective": "12", "last_completed_collective": "12"}}
    found = parse_flight(dump(raw(10), raw(11), pg_status=status))
    assert found.groups[0].last_enqueued == 11


def test_last_completed_is_before_the_first_pending():
    found = parse_flight(dump(raw(10), raw(11, retired=False), raw(12, retired=False)))
    assert (found.groups[0].last_enqueued, found.groups[0].last_completed) == (12, 10)


def test_default_group_without_entries_has_its_status():
    status = {"0": {"last_enqueued_collective": "70", "last_completed_collective": "69"}, "1": {}}
    found = parse_flight(dump(raw(5, group=("1", "tp")), pg_status=status))
    assert {(group.group, group.last_enqueued) for group in found.groups} == {("1", 5), ("0", 70)}


def test_members_of_a_nccl_group_are_known():
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    assert parse_flight(dump(raw(5), pg_config=config)).groups[0].ranks == (0, 1, 2, 3)


@pytest.mark.parametrize("config", [None, [], {"0": None}, {"0": {"ranks": None}}, {"0": {"ranks": "x"}}, GLOO_CONFIG])
def test_members_are_unknown_without_a_list(config):
    assert parse_flight(dump(raw(5), pg_config=config)).groups[0].ranks == ()


def test_messages_have_their_own_numbers():
    found = only(raw(5, operation="nccl:send 0->1", is_p2p=True, p2p_seq_id=9))
    assert (found.sequence, found.is_p2p) == (9, True)


def test_only_the_newest_entries_are_kept():
    found = parse_flight(dump(*(raw(number) for number in range(1, 501))))
    assert [one.sequence for one in found.collectives] == list(range(501 - MOST_ENTRIES, 501))


def test_first_pending_entry_is_kept_behind_many_others():
    entries = [raw(number, retired=number < 100) for number in range(1, 501)]
    found = parse_flight(dump(*entries))
    assert next(one.sequence for one in found.collectives if one.pending) == 100
    assert (len(found.collectives), found.groups[0].last_enqueued) == (MOST_ENTRIES, 500)


def test_number_of_groups_is_limited():
    found = parse_flight(dump(*(raw(1, group=(str(number), "x")) for number in range(200))))
    assert len(found.groups) == MOST_GROUPS
    assert found.groups[-1].group == "199"
