"""The pace of a rank, from the times of its steps and the flight recorder of torch 2.13."""

import json

import pytest

from echelon.diagnosis.pace import Call, CallRecord, Pace, StepMark, measure_pace, parse_calls

SECOND = 1_000_000_000
START = 1_794_978_364 * SECOND


def marks(count, *, seconds=1.0, wait=0.25, first=1):
    length = int(seconds * SECOND)
    return [
        StepMark(
            step=first + number,
            began=START + number * length,
            ended=START + (number + 1) * length,
            input_ns=int(wait * SECOND),
        )
        for number in range(count)
    ]


def calls_in(steps, *offsets, name="gloo:all_reduce"):
    return [
        Call(created=mark.began + int(offset * SECOND), name=name, pending=False)
        for mark in steps
        for offset in offsets
    ]


def entry(created=START, **changes):
    """An entry as torch 2.13 writes it for gloo."""
    return {
        "collective_seq_id": 24,
        "is_p2p": False,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "profiling_name": "gloo:all_reduce",
        "record_id": 0,
        "retired": True,
        "state": "scheduled",
        "time_created_ns": created,
        "time_discovered_completed_ns": 0,
        "timeout_ms": 1800000,
        **changes,
    }


def dump(*entries):
    return json.dumps({"version": "2.10", "entries": list(entries)}).encode()


def test_pace_is_the_mean_of_the_steps():
    steps = marks(20)
    pace = measure_pace(steps, CallRecord(calls=tuple(calls_in(steps, 0.5, 0.75))))
    assert (pace.steps, pace.seconds, pace.input_seconds) == (18, 1.0, 0.25)
    assert pace.arrivals == pytest.approx((0.5, 0.75))
    assert pace.pattern.startswith("2-")


def test_slowest_steps_are_left_out():
    steps = marks(10)
    slow = StepMark(step=11, began=steps[-1].ended, ended=steps[-1].ended + 60 * SECOND, input_ns=59 * SECOND)
    pace = measure_pace([*steps, slow], CallRecord())
    assert (pace.seconds, pace.input_seconds) == (1.0, 0.25)


def test_steps_with_other_collectives_are_left_out():
    steps = marks(12)
    usual = calls_in(steps, 0.5)
    extra = calls_in(steps[3:5], 0.9, name="gloo:barrier")
    calls = tuple(sorted([*usual, *extra], key=lambda call: call.created))
    assert measure_pace(steps, CallRecord(calls=calls)).arrivals == pytest.approx((0.5,))


def test_too_few_steps_have_no_pace():
    assert measure_pace(marks(3), CallRecord()) is None
    assert measure_pace([], None) is None


def test_without_a_record_arrivals_are_unknown():
    pace = measure_pace(marks(8), None)
    assert (pace.arrivals, pace.pattern, pace.input_seconds) == (None, "", 0.25)


def test_without_collectives_there_are_no_arrivals():
    assert measure_pace(marks(8), CallRecord()).arrivals == ()


def test_arrivals_of_nccl_are_unknown():
    """The host calls them ahead of the GPU."""
    steps = marks(8)
    assert measure_pace(steps, CallRecord(calls=tuple(calls_in(steps, 0.5, name="nccl:all_reduce")))).arrivals is None


def test_input_is_unknown_if_a_step_does_not_have_it():
    assert measure_pace(marks(8, wait=-1e-9), CallRecord()).input_seconds is None


def test_steps_before_the_oldest_recorded_call_are_left_out():
    steps = marks(20)
    record = CallRecord(calls=tuple(calls_in(steps[10:], 0.0, 0.5)), is_full=False)
    pace = measure_pace(steps, record)
    assert (pace.steps, pace.arrivals) == (9, pytest.approx((0.0, 0.5)))


def test_only_the_last_arrivals_of_many_are_kept():
    steps = marks(6)
    pace = measure_pace(steps, CallRecord(calls=tuple(calls_in(steps, *(number / 100 for number in range(90))))))
    assert len(pace.arrivals) == 32
    assert pace.arrivals[-1] == pytest.approx(0.89)
    assert pace.pattern.startswith("90-")


def test_pattern_differs_with_the_collectives():
    steps = marks(6)
    one, other = (
        measure_pace(steps, CallRecord(calls=tuple(calls_in(steps, 0.5, name=name))))
        for name in ("gloo:all_reduce", "gloo:broadcast")
    )
    assert one.pattern != other.pattern


def test_record_of_torch_is_parsed():
    record = parse_calls(dump(entry(START + 5), entry(START, profiling_name="gloo:broadcast")))
    assert [(call.created - START, call.name) for call in record.calls] == [
        (0, "gloo:broadcast"),
        (5, "gloo:all_reduce"),
    ]
    assert (record.group_timeout, record.is_full, record.pending_since) == (1800.0, True, None)


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({"retired": False}, True),
        ({"retired": False, "state": "completed"}, False),
        ({"retired": False, "process_group": ["1", "echelon"]}, False),
        ({"retired": False, "is_p2p": True}, False),
    ],
)
def test_rank_waits_if_a_collective_of_the_script_is_pending(changes, waits):
    assert (parse_calls(dump(entry(), entry(**changes))).pending_since is not None) is waits


def test_record_without_its_oldest_calls_is_not_full():
    assert not parse_calls(dump(entry(record_id=7), entry(record_id=8))).is_full


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'{"entries": 3}', b"\xff\xfe", b'{"version": 1}'])
def test_other_data_is_not_a_record(data):
    assert parse_calls(data) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"time_created_ns": "x"},
        {"time_created_ns": 1e300},
        {"time_created_ns": -5},
        {"profiling_name": None},
        {"timeout_ms": []},
        {"process_group": "echelon"},
        {"record_id": {}},
    ],
)
def test_entry_of_an_unknown_form_is_ignored(changes):
    record = parse_calls(dump(entry(**changes)))
    assert len(record.calls) == 1
    assert measure_pace(marks(8), record) is not None


def test_pace_is_a_plain_value():
    assert Pace(step=1, steps=1, seconds=1.0) == Pace(step=1, steps=1, seconds=1.0)
