"""The files that are saved before a hang is ended."""

import json
from dataclasses import replace
from types import SimpleNamespace

from echelon.agent.evidence import CollectedRank
from echelon.agent.evidence_files import (
    MOST_ATTEMPT_BYTES,
    MOST_FLIGHT_BYTES,
    EvidenceCollection,
    FlightBudget,
    format_stacks,
)
from echelon.attempt_dir import AttemptDir
from echelon.diagnosis.evidence import Child, ProcessState, RankEvidence
from echelon.wire.attempt_files import RunDirSinks

RANK = ProcessState(pid=7, state="D", wait_channel="rpc_wait", system_call="read", path="/nfs/x", command="python a.py")
WORKER = ProcessState(pid=8, state="S", command="python a.py --token abc")
COLLECTED = CollectedRank(
    evidence=RankEvidence(rank=3, host="n1", process=RANK, children=(Child(process=WORKER),)),
    stacks_text="Thread 0x1 (most recent call first):",
    flight_json=b'{"version": "2.10"}',
)


def saved(path, *ranks, generation=2, budget=None):
    collection = EvidenceCollection.__new__(EvidenceCollection)
    collection.generation = generation
    collection._budget = budget or FlightBudget(nodes=1)
    collection._context = SimpleNamespace(attempt=AttemptDir(path, 0), sinks=RunDirSinks())
    collection._collector = SimpleNamespace(result=ranks)
    return collection.save()


def test_rank_and_its_children_are_described_with_the_stacks():
    text = format_stacks(COLLECTED, 2)
    assert "generation 2\n" in text
    assert "pid 7  state D  waits in rpc_wait  read /nfs/x  python a.py\npid 8  state S  python a.py" in text
    assert text.endswith("Thread 0x1 (most recent call first):\n")


def test_missing_python_stacks_and_process_are_reported():
    assert "no Python stacks" in format_stacks(CollectedRank(evidence=RankEvidence(rank=0)), 0)


def test_each_rank_has_stacks_evidence_and_flight_record(tmp_path):
    ranks, problem = saved(tmp_path, COLLECTED)
    assert (ranks[0].process, problem) == (RANK, "")
    assert ranks[0].children[0].process.command == "python a.py --token ***"
    folder = tmp_path / "evidence" / "generation-2"
    assert sorted(path.name for path in folder.iterdir()) == ["rank-3.flight.json", "rank-3.json", "rank-3.stacks"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert json.loads((folder / "rank-3.json").read_text())["process"]["path"] == "/nfs/x"


def test_evidence_is_sent_even_if_it_cannot_be_saved(tmp_path):
    (tmp_path / "evidence").write_text("in the way")
    ranks, problem = saved(tmp_path, COLLECTED)
    assert [one.rank for one in ranks] == [3]
    assert problem


def test_later_generation_keeps_the_evidence_of_an_earlier_one(tmp_path):
    saved(tmp_path, COLLECTED, generation=0)
    saved(tmp_path, COLLECTED, generation=1)
    assert [path.name for path in sorted((tmp_path / "evidence").iterdir())] == ["generation-0", "generation-1"]
    assert (tmp_path / "evidence" / "generation-0" / "rank-3.flight.json").exists()


def test_records_of_all_nodes_together_are_bounded():
    budget, size = FlightBudget(nodes=8), MOST_FLIGHT_BYTES
    assert not budget.take(0)
    assert not budget.take(size + 1)
    assert sum(size for _ in range(100) if budget.take(size)) == MOST_ATTEMPT_BYTES // 8


def test_stacks_and_states_are_saved_beyond_the_bound(tmp_path):
    saved(tmp_path, COLLECTED, budget=FlightBudget(nodes=MOST_ATTEMPT_BYTES))
    names = [path.name for path in sorted((tmp_path / "evidence" / "generation-2").iterdir())]
    assert names == ["rank-3.json", "rank-3.stacks"]


def test_secrets_in_stacks_and_states_are_masked(tmp_path):
    process = replace(RANK, path="https://me:hunter2@host/x", command="python a.py HF_TOKEN=hf_abcdefghijklmnop")
    one = replace(COLLECTED, evidence=replace(COLLECTED.evidence, process=process), stacks_text="in f --password abc")
    saved(tmp_path, one)
    folder = tmp_path / "evidence" / "generation-2"
    for name in ("rank-3.json", "rank-3.stacks"):
        text = (folder / name).read_text()
        assert "hunter2" not in text
        assert "hf_abc" not in text
    assert "--password ***" in (folder / "rank-3.stacks").read_text()
