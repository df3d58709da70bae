"""Slow ranks in the status of a run and in the lines of a run that is followed."""

import pytest

from echelon.events import Event, Kind
from echelon.observe.follow import event_sentence
from echelon.observe.status import apply_events, slow_sentences

TEXT = "rank 6 on n2 is 1.8x slower than the median since step 400: waiting for input"


def slow(change="chronic", ranks=(6,), text=TEXT):
    fields = {"change": change, "ranks": list(ranks), "text": text}
    return Event(kind=Kind.SLOW, time=1.0, fields=fields)


def event(kind, **fields):
    return Event(kind=kind, time=1.0, fields=fields)


@pytest.mark.parametrize(
    ("events", "sentences"),
    [
        ([], ()),
        ([slow()], (TEXT,)),
        ([slow(), slow("ended")], ()),
        ([slow("once")], ()),
        ([slow(), slow(ranks=[1], text="other")], (TEXT, "other")),
        ([slow(), slow("ended", ranks=[1])], (TEXT,)),
        ([slow(ranks=[6, 7]), slow("ended", ranks=[6])], (TEXT,)),
        ([slow(), event(Kind.GENERATION, generation=1)], ()),
        ([slow(), event(Kind.STARTED)], ()),
        ([slow(), event(Kind.FINISHED, outcome="succeeded")], (TEXT,)),
        ([Event(kind=Kind.SLOW, time=1.0, fields={"ranks": "x", "change": 3})], ()),
    ],
)
def test_slow_ranks_exclude_recovered_ones(events, sentences):
    assert slow_sentences(events) == sentences
    assert apply_events(events).get("slow", ()) == sentences


@pytest.mark.parametrize(("change", "line"), [("chronic", f"warning: {TEXT}"), ("ended", TEXT), ("once", None)])
def test_passing_slowness_is_not_shown(change, line):
    assert event_sentence(slow(change)) == line
