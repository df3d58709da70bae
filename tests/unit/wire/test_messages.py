"""Every message can be encoded and decoded. Other data is rejected."""

import json

import pytest

from echelon.diagnosis.death_evidence import DeathEvidence, MemoryFacts, Parent
from echelon.diagnosis.evidence import RankEvidence
from echelon.placement import Placement
from echelon.wire import messages
from echelon.wire.messages import KINDS, ErrorRecord, Exit, Exited, Heartbeat, Sample, from_wire, to_wire

PLACEMENT = Placement(
    run_id="x-1",
    attempt=1,
    generation=2,
    node_rank=0,
    nodes=2,
    procs_per_node=4,
    main_address="10.0.0.1",
    main_port=29500,
    store_is_up=True,
    max_restarts=3,
)
ERROR = ErrorRecord(time=1.5, type="ValueError", message="b\u00e4d \udcff", traceback="Traceback\n  ...")
EXIT = Exit(rank=3, host="gpu7", code=-9, time=12.25, lines=4, step=7, committed=5, error=ERROR)
DEATH = DeathEvidence(
    code=-9,
    output=("last",),
    memory=MemoryFacts(limit=1 << 30, kills_before=0, kills_after=1),
    dead_parent=Parent.STARTER,
)
EXAMPLES = (
    messages.SupervisorEnviron(variables={"GREETING": "hello,\nworld", "BYTES": "\udcff"}),
    messages.CheckNode(rank=1, size=2, address="10.0.0.1", port=7000, key="ab"),
    messages.MeetingOpened(port=7000),
    messages.NodeChecked(output='{"doctor": "end"}'),
    messages.BindPort(generation=1),
    messages.Start(placement=PLACEMENT),
    messages.Start(placement=PLACEMENT, hosts=("gpu7",), folders=("/dev/shm/echelon-x",)),
    messages.Notice(seconds_left=59.5),
    messages.CollectEvidence(generation=1),
    messages.Stop(generation=1, grace=0.0),
    messages.Ping(),
    messages.Shutdown(),
    messages.Hello(node=1, host="gpu7", address="10.0.0.7", pid=99, node_dir="/tmp/echelon-x"),
    messages.PortBound(generation=1, port=29500, store_is_up=False),
    messages.Started(generation=1, rank=0, pid=100),
    Exited(generation=1, exit=EXIT),
    Exited(generation=1, exit=Exit(rank=0, host="gpu7", code=0, time=1.0)),
    Exited(generation=1, exit=Exit(rank=0, host="gpu7", code=-9, time=1.0, evidence=DEATH)),
    messages.EvidenceCollected(generation=1, ranks=(RankEvidence(rank=3, host="n1"),)),
    messages.StoreDied(generation=1),
    messages.LauncherFailed(generation=1, sentence="torchrun on gpu7 was killed by SIGKILL"),
    messages.Stopped(generation=1),
    Heartbeat(generation=1, samples=(Sample(rank=0, lines=1, cpu_seconds=0.5, stopped=False, step=3, committed=2),)),
    Heartbeat(generation=1),
    messages.FatalNodeProblem(what="no torch", why="ImportError", hint="pip install torch"),
    messages.Preempted(),
    messages.Remark(text="hello"),
    messages.FilePiece(file="rank-0.out", data="aGVsbG8=", whole=True),
)


def test_there_is_an_example_of_every_kind():
    assert {type(example).__name__ for example in EXAMPLES} == set(KINDS)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_message_is_unchanged_by_the_wire(message):
    assert from_wire(json.loads(json.dumps(to_wire(message)))) == message


def test_infinite_time_is_unchanged_by_the_wire():
    message = messages.Notice(seconds_left=float("inf"))
    assert from_wire(json.loads(json.dumps(to_wire(message)))) == message


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"is": "Explode"},
        {"is": None},
        {"is": ["BindPort"]},
        {"is": "BindPort"},
        {"is": "BindPort", "generation": "1"},
        {"is": "BindPort", "generation": True},
        {"is": "BindPort", "generation": 1, "extra": 2},
        {"is": "Exited", "generation": 1, "exit": None},
        {"is": "Heartbeat", "generation": 1, "samples": [1]},
    ],
    ids=repr,
)
def test_invalid_message_is_refused(wire):
    with pytest.raises(ValueError):
        from_wire(wire)


def test_reading_a_message_does_not_change_its_data():
    wire = to_wire(messages.BindPort(generation=1))
    from_wire(wire)
    assert wire == {"is": "BindPort", "generation": 1}
