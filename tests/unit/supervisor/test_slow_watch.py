"""The supervisor looks at the pace of all ranks together."""

import json

from echelon.diagnosis.pace import Pace
from echelon.diagnosis.slow import CHRONIC_LOOKS
from echelon.run_dir import RunDir
from echelon.supervisor.journal import Journal
from echelon.supervisor.slow_watch import SlowWatch
from echelon.wire.messages import Heartbeat, Sample, from_wire, to_wire

OWN = {0: 0.1, 1: 0.1, 2: 0.3}


def sample(rank, pace=True):
    arrivals = (OWN[rank],)
    found = Pace(step=40, steps=28, seconds=0.3, input_seconds=0.0, arrivals=arrivals, pattern="1-x") if pace else None
    return Sample(rank=rank, lines=0, cpu_seconds=0.0, stopped=False, step=40, pace=found)


def test_look_needs_a_new_pace_of_every_rank():
    watch, found = SlowWatch(3), []
    for _ in range(CHRONIC_LOOKS):
        watch.observe("n0", [sample(0), sample(1)])
        assert watch.changes(OWN) == []
        watch.observe("n1", [sample(2, pace=False)])
        assert watch.changes(OWN) == []
        watch.observe("n1", [sample(2)])
        found += watch.changes(OWN)
    assert [verdict.sentence for verdict in found] == [
        "rank 2 on n1 is 3.0x slower than the median since step 13: in its own code"
    ]


def test_ranks_are_not_slow_after_the_first_exit():
    watch = SlowWatch(3)
    for _ in range(2 * CHRONIC_LOOKS):
        watch.observe("n0", map(sample, OWN))
        assert watch.changes([0, 1]) == []


def test_pace_is_unchanged_by_the_wire():
    heartbeat = Heartbeat(generation=0, samples=(sample(0), sample(1, pace=False)))
    assert from_wire(json.loads(json.dumps(to_wire(heartbeat)))) == heartbeat


def test_slow_rank_is_an_event_a_warning_and_a_remark(tmp_path, capsys):
    (tmp_path / "attempt-0").mkdir()
    journal, watch = Journal(RunDir(tmp_path), 0), SlowWatch(3)
    for _ in range(CHRONIC_LOOKS):
        watch.observe("n1", map(sample, OWN))
        for verdict in watch.changes(OWN):
            journal.slow(verdict)
    (event,) = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    text = "rank 2 on n1 is 3.0x slower than the median since step 13: in its own code"
    assert (event["kind"], event["change"], event["ranks"], event["text"]) == ("slow", "chronic", [2], text)
    assert capsys.readouterr().err == f"warning: {text}\n"
