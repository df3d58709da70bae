"""The facts about a dead rank that its node collects."""

import os

import pytest

from echelon.agent.deaths import NodeWatch, collect_death, named_disk, needs_evidence
from echelon.diagnosis.death_evidence import DiskFacts, Parent
from echelon.wire.messages import Exit
from echelon.wire.node_dir import NodeDir
from echelon.wire.reports import ErrorRecord

CRASH = 'Fatal Python error: Aborted\n\nCurrent thread 0x2 (most recent call first):\n  File "a.py", line 3 in step\n'


def error(message, type="RuntimeError"):
    return ErrorRecord(time=1.0, type=type, message=message, traceback="")


def exit_of(code, message=None, rank=0):
    return Exit(rank=rank, host="n1", code=code, time=1.0, error=None if message is None else error(message))


@pytest.mark.parametrize(
    ("exit", "running", "stopping"),
    [
        (exit_of(0), False, False),
        (exit_of(75), False, False),
        (exit_of(1), True, True),
        (exit_of(-11), True, True),
        (exit_of(-9), True, False),
        (exit_of(-15), True, False),
        (exit_of(-15, "it raised before the stop"), True, True),
        (exit_of(1, "shapes do not match"), True, True),
        (exit_of(1, "Connection closed by peer"), False, False),
    ],
    ids=lambda value: f"{value.code} {value.error and value.error.message}" if isinstance(value, Exit) else "",
)
def test_only_a_possible_cause_gets_evidence(exit, running, stopping):
    assert needs_evidence(exit, is_stopping=False) is running
    assert needs_evidence(exit, is_stopping=True) is stopping


def collect(tmp_path, exit, **facts):
    given = {"output": (), "peak": None, "watch": None, "dead_parent": None, **facts}
    return collect_death(exit, node_dir=NodeDir(tmp_path), cwd=tmp_path, **given)


def test_the_evidence_has_output_and_parent(tmp_path):
    found = collect(tmp_path, exit_of(-9), output=("one", "x" * 9000), dead_parent=Parent.STARTER)
    assert (found.code, found.dead_parent) == (-9, Parent.STARTER)
    assert found.output == ("one", "x" * 500)


def test_the_evidence_has_facts_of_the_node(tmp_path):
    found = collect(tmp_path, exit_of(-9), watch=NodeWatch(os.getpid()), peak=5 << 20)
    assert found.memory.rank_peak == 5 << 20
    assert found.memory.machine_bytes > 0
    assert found.shared_memory.size > 0
    assert found.limits.open_files > 0


def test_crash_has_a_stack_and_exception_does_not(tmp_path):
    NodeDir(tmp_path).fatal(0).write_text(CRASH)
    assert collect(tmp_path, exit_of(-6)).fatal_stack == CRASH
    assert collect(tmp_path, exit_of(1, "no")).fatal_stack == ""
    assert collect(tmp_path, exit_of(-6, rank=1)).fatal_stack == ""


def test_full_disk_is_checked(tmp_path):
    found = named_disk(error("[Errno 28] No space left on device: 'sub/model.pt'", "OSError"), tmp_path)
    assert found.path == "sub/model.pt"
    assert found.free_bytes > 0


@pytest.mark.parametrize(
    "message", ["[Errno 28] No space left on device", "[Errno 2] No such file or directory: 'sub/model.pt'", ""]
)
def test_only_the_named_disk_is_checked(tmp_path, message):
    assert named_disk(error(message, "OSError"), tmp_path) == DiskFacts()
    assert named_disk(None, tmp_path) == DiskFacts()
