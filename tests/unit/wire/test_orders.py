"""Every order and report arrives as it was sent, with its file descriptors. Anything else is rejected."""

import json
import os
import socket
from typing import get_args

import pytest

from echelon.placement import Placement, RankPlace
from echelon.wire import fds, reports
from echelon.wire.fds import (
    IMPORTER_ORDERS,
    IMPORTER_REPORTS,
    REPORTS,
    STARTER_ORDERS,
    WORKER_ORDERS,
    WORKER_REPORTS,
    receive_order,
    send_order,
)

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
SIGNAL = fds.Signal(ranks=(0, 3), signum=15, group=True)
STARTED = reports.Started(generation=1, rank=0, pid=77)
ENDED = fds.RankEnded(generation=1, rank=0, code=-9, time=1.5)
READY = fds.Ready(pid=77)
EXAMPLES = [
    (
        STARTER_ORDERS,
        fds.StartRank(
            generation=1, rank=3, umask=0o022, env={"RANK": "3", "BYTES": "\udcff"}, changes={"A": "1", "B": None}
        ),
    ),
    (STARTER_ORDERS, fds.OpenStore(generation=1, address="10.0.0.1", port=29500)),
    (STARTER_ORDERS, fds.RunLauncher(argv=("torchrun", "x.py"), env={"A": "1"}, removed=("B",), launcher_seconds=3.0)),
    (STARTER_ORDERS, SIGNAL),
    (STARTER_ORDERS, fds.Workers(workers=((77, 123456), (78, 123457)))),
    (STARTER_ORDERS, fds.KillLeftovers(generation=1, launcher_seconds=0.0)),
    (
        WORKER_ORDERS,
        fds.RunRank(
            argv=("true",),
            cwd="/",
            umask=0o022,
            env={"A": "1"},
            defaults={"B": "2"},
            place=RankPlace(placement=PLACEMENT, local_rank=1, hosts="n[1-2]", user_variables=("LR",)),
        ),
    ),
    (WORKER_ORDERS, SIGNAL),
    (REPORTS, READY),
    (REPORTS, STARTED),
    (REPORTS, ENDED),
    (REPORTS, reports.StoreDied(generation=1)),
    (REPORTS, fds.LauncherEnded(code=1)),
    (REPORTS, reports.LauncherFailed(generation=1, sentence="torchrun on gpu7 was killed by SIGKILL")),
    (REPORTS, reports.FatalNodeProblem(what="no torch", why="ImportError", hint="pip install torch")),
    (REPORTS, fds.LeftoversKilled(generation=1)),
    (
        WORKER_REPORTS,
        fds.CheckIn(generation=1, local_rank=0, rank=2, world_size=4, description="srun assigned rank 2 of 4"),
    ),
    (WORKER_REPORTS, STARTED),
    (WORKER_REPORTS, ENDED),
    (IMPORTER_ORDERS, fds.ServeAgent(number=70)),
    (IMPORTER_ORDERS, fds.EndStarter(number=70, seconds=3.0)),
    (IMPORTER_ORDERS, fds.ForkStarter(agent=70, node_dir="/tmp/x", gpus=None)),
    (IMPORTER_ORDERS, fds.KillStarter()),
    (IMPORTER_REPORTS, READY),
    (IMPORTER_REPORTS, fds.StarterEnded(pid=77)),
    (IMPORTER_REPORTS, fds.AgentServed(number=70)),
]


@pytest.fixture
def link():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize(
    ("kinds", "union"),
    [
        (STARTER_ORDERS, fds.StarterOrder),
        (WORKER_ORDERS, fds.WorkerOrder),
        (REPORTS, fds.Report),
        (WORKER_REPORTS, fds.WorkerReport),
        (IMPORTER_ORDERS, fds.ImporterOrder),
        (IMPORTER_REPORTS, fds.ImporterReport),
    ],
    ids=["starter orders", "worker orders", "reports", "worker reports", "importer orders", "importer reports"],
)
def test_there_is_an_example_of_every_kind(kinds, union):
    assert {type(order) for examples, order in EXAMPLES if examples is kinds} == set(get_args(union))


@pytest.mark.parametrize(("kinds", "order"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_order_arrives_unchanged(link, kinds, order):
    send_order(link[0], order)
    assert receive_order(link[1], kinds) == (order, [])


def test_file_descriptor_arrives_beside_its_order(link):
    reading, writing = os.pipe()
    send_order(link[0], fds.OpenStore(generation=1, address="10.0.0.1", port=29500), (writing,))
    _, (copy,) = receive_order(link[1], STARTER_ORDERS)
    os.write(copy, b"hello")
    assert os.read(reading, 9) == b"hello"
    for fd in (reading, writing, copy):
        os.close(fd)


@pytest.mark.parametrize(
    "wire",
    [
        [],
        {},
        {"is": "Explode"},
        {"is": "Ready"},
        {"is": "KillLeftovers"},
        {"is": "KillLeftovers", "generation": "1", "launcher_seconds": 0.0},
        {"is": "KillLeftovers", "generation": 1, "launcher_seconds": 0.0, "extra": 1},
        {"is": "Signal", "ranks": [None], "signum": 9, "group": True},
    ],
    ids=repr,
)
def test_invalid_order_is_refused(link, wire):
    link[0].send(json.dumps(wire).encode())
    with pytest.raises(ValueError):
        receive_order(link[1], STARTER_ORDERS)


def test_end_of_the_connection_is_not_an_order(link):
    link[0].close()
    assert receive_order(link[1], STARTER_ORDERS) is None
