"""The `try` line of a fault fits the failure."""

import pytest

from echelon.diagnosis.causes import HINTS, RESTART, Cause
from echelon.supervisor.recovery import final_hint
from echelon.supervisor.state import Rules, State
from echelon.wire.faults import Fault, fault_from_exits
from echelon.wire.messages import Exit
from echelon.wire.reports import ErrorRecord


def fault(code, error=""):
    kind, _, message = error.partition(": ")
    record = ErrorRecord(time=1.0, type=kind, message=message, traceback="") if error else None
    return fault_from_exits([Exit(rank=0, host="n1", code=code, time=1.0, error=record)])


def hint(fault, restarts=0):
    return final_hint(State(rules=Rules(nodes=1, min_nodes=1, restarts=restarts)), fault)


@pytest.mark.parametrize(
    "error",
    [
        "SyntaxError: invalid syntax",
        "KeyError: 'lr'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
        "ModuleNotFoundError: No module named 'einops'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 5x4)",
        "torch.OutOfMemoryError: CUDA out of memory",
    ],
)
def test_a_mistake_in_the_script_gets_no_restart_advice(error):
    assert hint(fault(1, error))
    assert "--restarts" not in hint(fault(1, error))


@pytest.mark.parametrize("code", [126, 127])
def test_a_wrong_command_gets_no_restart_advice(code):
    assert hint(fault(code))
    assert "--restarts" not in hint(fault(code))


@pytest.mark.parametrize(
    "passing",
    [
        Fault(sentence="no progress for 60 s"),
        fault(-11),
        fault(3),
        fault(1, "ConnectionResetError: [Errno 104] Connection reset by peer"),
        fault(1, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
        fault(1, "OSError: [Errno 116] Stale file handle"),
    ],
    ids=str,
)
def test_a_passing_fault_gets_restart_advice(passing):
    assert RESTART in hint(passing)
    assert "--restarts" not in hint(passing, restarts=2), "it has restarts already"


@pytest.mark.parametrize(
    ("error", "place"),
    [
        ("OSError: [Errno 28] No space left on device: '/scratch/me/model.pt'", "the full file system"),
        ("OSError: [Errno 122] Disk quota exceeded: '/home/me/it\\'s.pt'", "your quota"),
        ("OSError: [Errno 28] No space left on device", "the full file system"),
    ],
)
@pytest.mark.parametrize("code", [1, -15], ids=["exit code 1", "ended after it raised"])
def test_a_full_disk_gets_advice_to_free_space_and_resume(error, place, code):
    said = hint(fault(code, error))
    assert said.endswith("then echelon resume {run}")
    assert place in said
    assert "--restarts" not in said


@pytest.mark.parametrize("code", [-9, 137])
def test_a_killed_rank_gets_advice_about_memory(code):
    for words in ("--mem", "dmesg", "--restarts"):
        assert words in hint(fault(code))


def test_advice_that_is_only_about_restarts_is_left_out():
    assert hint(Fault(sentence="the store died"), restarts=1) == ""
    assert hint(Fault(sentence="", hint=HINTS[Cause.AGENT_DIED]), restarts=1).startswith("--spare-nodes N")
