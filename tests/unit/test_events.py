"""Events: one line each, read back whole or not at all."""

import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.events import Event, Kind, append_event, parse_event, read_events

fields = st.dictionaries(
    st.text(min_size=1, max_size=5).filter(lambda key: key not in ("time", "kind", "attempt")),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=3),
    max_size=4,
)


@given(st.sampled_from(Kind), st.integers(0, 10**10), st.integers(0, 100), fields)
def test_event_is_unchanged_by_its_line(kind, time, attempt, fields):
    event = Event(kind=kind, time=float(time), attempt=attempt, fields=fields)
    line = event.line()
    assert "\n" not in line
    assert parse_event(line) == event


def test_a_line_begins_with_time_kind_and_attempt():
    event = Event(kind=Kind.FAULT, time=12.34567, attempt=1, fields={"fault": "rank 0 died"})
    assert event.line() == '{"time": 12.346, "kind": "fault", "attempt": 1, "fault": "rank 0 died"}'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"time": 1, "kind": "fau',
        "null",
        "3",
        '"text"',
        "[]",
        "{}",
        '{"time": 1}',
        '{"kind": "fault"}',
        '{"time": 1, "kind": "from a newer version"}',
        '{"time": 1, "kind": ["fault"]}',
        '{"time": "noon", "kind": "fault"}',
        '{"time": null, "kind": "fault"}',
        '{"time": 1, "kind": "fault", "attempt": "first"}',
        '{"time": 1, "kind": "fault", "attempt": 1e999}',
        '{"time": 1' + "0" * 400 + ', "kind": "fault"}',
    ],
    ids=lambda line: line[:50],
)
def test_other_text_is_not_an_event(line):
    assert parse_event(line) is None


@given(st.text())
def test_any_text_is_an_event_or_none(text):
    parse_event(text)


def test_the_attempt_may_be_left_out():
    assert parse_event('{"time": 1, "kind": "fault"}') == Event(kind=Kind.FAULT, time=1.0)


def test_events_are_appended_and_read_in_order(tmp_path):
    path = tmp_path / "events.jsonl"
    append_event(path, Kind.SUBMITTED, 0, scheduler="local")
    append_event(path, Kind.FINISHED, 0, exit_code=0)
    assert [(event.kind, event.fields) for event in read_events(path)] == [
        (Kind.SUBMITTED, {"scheduler": "local"}),
        (Kind.FINISHED, {"exit_code": 0}),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_event_has_the_time_it_was_written(tmp_path):
    path = tmp_path / "events.jsonl"
    append_event(path, Kind.SUBMITTED, 0)
    (event,) = read_events(path)
    assert abs(event.time - path.stat().st_mtime) < 60


def test_bad_lines_are_skipped_and_the_others_read(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'\xff\xfe\n{"time": 1, "kind": "fault"}\n\n{"time": 2, "kind": "notice"}\n{"time": 3, "ki')
    assert [event.kind for event in read_events(path)] == [Kind.FAULT, Kind.NOTICE]


def test_missing_file_has_no_events(tmp_path):
    assert list(read_events(tmp_path / "nothing")) == []


def test_line_of_several_short_writes_is_complete(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr("echelon.events.os.write", lambda fd, data: write(fd, data[:10]))
    append_event(tmp_path / "events.jsonl", Kind.PROGRESS, 0, step=7)
    (event,) = read_events(tmp_path / "events.jsonl")
    assert event.fields["step"] == 7


def test_two_writers_never_interleave(tmp_path):
    path = tmp_path / "events.jsonl"

    def write(name):
        for number in range(200):
            append_event(path, Kind.PROGRESS, 0, writer=name, step=number, padding="x" * 500)

    writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for name in "ab":
        assert [line["step"] for line in lines if line["writer"] == name] == list(range(200))
