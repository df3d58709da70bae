"""The first failure by time is the cause. Errors after the exit of a peer are consequences."""

import signal

import pytest

from echelon.diagnosis.causes import Cause
from echelon.diagnosis.death_evidence import DeathEvidence, Parent
from echelon.diagnosis.history import Failure
from echelon.diagnosis.kills import signal_name
from echelon.wire.faults import (
    Fault,
    evidence_of,
    exit_death,
    fault_from_exits,
    follows_peer_exit,
    root_cause,
    shell_code,
)
from echelon.wire.messages import Exit
from echelon.wire.reports import ErrorRecord

STARTER = DeathEvidence(code=-9, dead_parent=Parent.STARTER)


def error(message, *, type="RuntimeError", time=1.0):
    return ErrorRecord(time=time, type=type, message=message, traceback="Traceback ...")


def left(rank=0, code=1, time=1.0, **fields):
    return Exit(rank=rank, host="gpu7", code=code, time=time, **fields)


@pytest.mark.parametrize(("code", "shell"), [(0, 0), (1, 1), (75, 75), (255, 255), (-9, 137), (-15, 143)])
def test_a_signal_is_128_and_its_number(code, shell):
    assert shell_code(code) == shell


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (10, "SIGUSR1"), (250, "signal 250")])
def test_signals_with_a_name_are_named(number, name):
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("exit", "sentence"),
    [
        (left(3, 2), "rank 3 on gpu7 exited with code 2"),
        (left(3, -11), "rank 3 on gpu7 crashed with SIGSEGV (segmentation fault)"),
        (left(3, -9), "rank 3 on gpu7 was killed by SIGKILL; no memory record of its cgroup is available"),
        (left(3, error=error("no data", type="SystemExit")), "rank 3 on gpu7 exited: no data"),
        (left(3, -9, evidence=STARTER), "the starter on gpu7 died; rank 3 on gpu7 was killed with it"),
        (left(3, error=error("bad batch", type="ValueError")), "rank 3 on gpu7 raised ValueError: bad batch"),
        (left(3, error=error("\nfirst\nsecond")), "rank 3 on gpu7 raised RuntimeError: first"),
    ],
)
def test_exit_is_described_in_one_sentence(exit, sentence):
    assert exit_death(exit).sentence == sentence


def test_a_long_message_is_cut():
    assert len(exit_death(left(error=error("x" * 10_000))).sentence) < 400


def test_the_evidence_of_the_node_gets_the_exception():
    exit = left(1, error=error("no", type="ValueError"), evidence=DeathEvidence(code=1, output=("last",)))
    assert evidence_of(exit) == DeathEvidence(
        code=1, error_type="ValueError", error_message="no", traceback="Traceback ...", output=("last",)
    )


def test_text_of_sys_exit_is_not_an_exception():
    found = evidence_of(left(1, error=error("no data", type="SystemExit")))
    assert (found.exit_text, found.error_type) == ("no data", "")


@pytest.mark.parametrize(
    "message",
    [
        "Connection closed by peer [127.0.0.2]:1234",
        "[../gloo/transport/tcp/pair.cc:547] Connection reset by peer",
        "NCCL error: remote process exited or there was a network error",
        "Broken pipe",
        "Socket Timeout",
    ],
)
def test_lost_peer_is_a_consequence(message):
    assert follows_peer_exit(left(error=error(message)))


@pytest.mark.parametrize("message", ["CUDA out of memory", "shapes do not match", ""])
def test_other_messages_are_not_consequences(message):
    assert not follows_peer_exit(left(error=error(message)))


def test_torch_network_error_is_a_consequence_by_type():
    assert follows_peer_exit(left(error=error("...", type="torch.distributed.DistNetworkError")))


def test_exit_without_an_exception_is_not_a_consequence():
    assert not follows_peer_exit(left(code=-9))


def test_the_earliest_failure_is_the_cause():
    exits = [left(0, 1, time=3.0), left(1, 2, time=1.0), left(2, 0, time=0.5)]
    assert root_cause(exits).rank == 1


def test_cause_is_ordered_by_exception_time():
    slow_to_leave = left(0, 1, time=9.0, error=error("cause", time=1.0))
    assert root_cause([left(1, 1, time=2.0), slow_to_leave]).rank == 0


def test_earlier_consequence_is_not_the_cause():
    exits = [left(0, 1, error=error("Connection closed by peer", time=1.0)), left(1, 1, time=2.0)]
    assert root_cause(exits).rank == 1


def test_earliest_peer_error_is_the_cause_without_others():
    exits = [left(rank, 1, error=error("Broken pipe", time=5.0 - rank)) for rank in range(3)]
    assert root_cause(exits).rank == 2


@pytest.mark.parametrize("exits", [[], [left(code=0)]])
def test_cause_is_none_without_a_failure(exits):
    assert root_cause(exits) is None
    assert fault_from_exits(exits) is None


def test_a_fault_carries_the_exit_and_its_code():
    fault = fault_from_exits([left(2, -9, step=7)])
    assert fault.sentence.startswith("rank 2 on gpu7 was killed by SIGKILL")
    assert fault.exit == left(2, -9, step=7)
    assert fault.failure == Failure(cause=Cause.KILLED, signature="killed by SIGKILL", step=7, host="gpu7")
    assert fault.cause == "killed by SIGKILL"
    assert fault.exit_code == 137


def test_a_fault_without_an_exit_ends_with_1():
    assert Fault(sentence="node1 was lost").exit_code == 1


def place(exit):
    """What makes two failures the same: the exception and its place."""
    failure = fault_from_exits([exit]).failure
    return failure.signature, failure.step


def test_exceptions_are_equal_despite_addresses_and_numbers():
    first = left(error=error("bad value 17 in <Tensor at 0x7f3a>"), step=4)
    second = left(rank=5, error=error("bad value 23 in <Tensor at 0x8e11>"), step=4)
    assert place(first) == place(second)


@pytest.mark.parametrize(
    "other",
    [
        left(error=error("bad"), step=5),
        left(error=error("worse"), step=4),
        left(error=error("bad", type="KeyError"), step=4),
        left(error=error("bad"), lines=4),
    ],
)
def test_exceptions_differ_by_step_type_and_message(other):
    assert place(left(error=error("bad"), step=4)) != place(other)


def test_signature_uses_the_output_line_without_steps():
    assert place(left(error=error("bad"), lines=10)) == place(left(error=error("bad"), lines=10))
    assert place(left(error=error("bad"), lines=10)) != place(left(error=error("bad"), lines=11))


@pytest.mark.parametrize(("code", "shown"), [(1, 1), (-signal.SIGTERM, 1), (-signal.SIGKILL, 1), (-signal.SIGINT, 130)])
def test_exception_counts_if_a_stop_signal_ended_the_rank(code, shown):
    error = ErrorRecord(time=1.0, type="ValueError", message="no", traceback="")
    exit = Exit(rank=0, host="n0", code=code, time=2.0, error=error)
    assert fault_from_exits([exit]).exit_code == shown


REFUSED = error("[Errno 111] Connection refused", type="URLError")


def test_ranks_that_echelon_stopped_are_never_the_cause():
    """All clocks but that of the failed rank are late, so the stopped ranks seem to have died first."""
    failed, stopped = left(1, error=REFUSED, time=9.0), [left(rank, -15, time=1.0) for rank in (0, 2, 3)]
    assert root_cause([*stopped, failed]) == failed


def test_a_killed_rank_is_the_cause_and_not_the_echo_of_its_peer():
    killed, echo = left(1, -9, time=9.0, evidence=DeathEvidence(code=-9)), left(0, error=REFUSED, time=1.0)
    assert root_cause([echo, killed]) == killed
