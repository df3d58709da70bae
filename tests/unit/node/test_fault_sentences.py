"""The first failure by time is the cause; what the others say about it is an echo."""

import signal

import pytest

from echelon.node.faults import (
    Fault,
    exit_sentence,
    fault_of,
    is_echo,
    root_cause,
    shell_code,
    signal_name,
    signature_of,
)
from echelon.node.messages import ErrorRecord, Exit


def error(message, *, type="RuntimeError", time=1.0):
    return ErrorRecord(time=time, type=type, message=message, traceback="Traceback ...")


def left(rank=0, code=1, time=1.0, **fields):
    return Exit(rank=rank, host="gpu7", code=code, time=time, **fields)


@pytest.mark.parametrize(("code", "shell"), [(0, 0), (1, 1), (75, 75), (255, 255), (-9, 137), (-15, 143)])
def test_a_signal_is_128_and_its_number(code, shell):
    assert shell_code(code) == shell


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (10, "SIGUSR1"), (250, "signal 250")])
def test_signals_are_named_where_they_have_a_name(number, name):
    assert signal_name(number) == name


@pytest.mark.parametrize(
    ("exit", "sentence"),
    [
        (left(3, 2), "rank 3 on gpu7 exited with code 2"),
        (left(3, -11), "rank 3 on gpu7 was killed by SIGSEGV"),
        (left(3, error=error("bad batch", type="ValueError")), "rank 3 on gpu7 raised ValueError: bad batch"),
        (left(3, error=error("\nfirst\nsecond")), "rank 3 on gpu7 raised RuntimeError: first"),
    ],
)
def test_an_exit_is_told_in_one_sentence(exit, sentence):
    assert exit_sentence(exit) == sentence


def test_a_long_message_is_cut():
    assert len(exit_sentence(left(error=error("x" * 10_000)))) < 400


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
def test_a_peer_that_has_gone_is_an_echo(message):
    assert is_echo(left(error=error(message)))


@pytest.mark.parametrize("message", ["CUDA out of memory", "shapes do not match", ""])
def test_anything_else_is_none(message):
    assert not is_echo(left(error=error(message)))


def test_a_torch_network_error_is_an_echo_by_its_type():
    assert is_echo(left(error=error("...", type="torch.distributed.DistNetworkError")))


def test_an_exit_without_an_exception_is_no_echo():
    assert not is_echo(left(code=-9))


def test_the_earliest_failure_is_the_cause():
    exits = [left(0, 1, time=3.0), left(1, 2, time=1.0), left(2, 0, time=0.5)]
    assert root_cause(exits).rank == 1


def test_the_time_of_the_exception_counts_not_the_time_of_the_exit():
    slow_to_leave = left(0, 1, time=9.0, error=error("cause", time=1.0))
    assert root_cause([left(1, 1, time=2.0), slow_to_leave]).rank == 0


def test_an_echo_that_came_first_is_not_the_cause():
    exits = [left(0, 1, error=error("Connection closed by peer", time=1.0)), left(1, 1, time=2.0)]
    assert root_cause(exits).rank == 1


def test_the_earliest_echo_is_the_cause_where_there_is_nothing_else():
    exits = [left(rank, 1, error=error("Broken pipe", time=5.0 - rank)) for rank in range(3)]
    assert root_cause(exits).rank == 2


@pytest.mark.parametrize("exits", [[], [left(code=0)]])
def test_without_a_failure_there_is_no_cause(exits):
    assert root_cause(exits) is None
    assert fault_of(exits) is None


def test_a_fault_carries_the_exit_and_its_code():
    fault = fault_of([left(2, -9)])
    assert fault == Fault(sentence="rank 2 on gpu7 was killed by SIGKILL", exit=left(2, -9), signature=None)
    assert fault.exit_code == 137


def test_a_fault_without_an_exit_ends_with_1():
    assert Fault(sentence="node1 was lost").exit_code == 1


def test_addresses_and_numbers_do_not_tell_two_exceptions_apart():
    first = left(error=error("bad value 17 in <Tensor at 0x7f3a>"), step=4)
    second = left(rank=5, error=error("bad value 23 in <Tensor at 0x8e11>"), step=4)
    assert signature_of(first) == signature_of(second)


@pytest.mark.parametrize(
    "other",
    [
        left(error=error("bad"), step=5),
        left(error=error("worse"), step=4),
        left(error=error("bad", type="KeyError"), step=4),
        left(error=error("bad"), lines=4),
    ],
)
def test_the_step_the_type_and_the_message_tell_them_apart(other):
    assert signature_of(left(error=error("bad"), step=4)) != signature_of(other)


def test_the_output_line_is_the_place_where_no_steps_are_reported():
    assert signature_of(left(error=error("bad"), lines=10)) == signature_of(left(error=error("bad"), lines=10))
    assert signature_of(left(error=error("bad"), lines=10)) != signature_of(left(error=error("bad"), lines=11))


def test_without_an_exception_there_is_nothing_to_compare():
    assert signature_of(left(code=-9, step=4)) is None


@pytest.mark.parametrize(("code", "shown"), [(1, 1), (-signal.SIGTERM, 1), (-signal.SIGKILL, 1), (-signal.SIGINT, 130)])
def test_a_rank_that_raised_and_was_ended_by_us_failed_of_its_exception(code, shown):
    error = ErrorRecord(time=1.0, type="ValueError", message="no", traceback="")
    exit = Exit(rank=0, host="n0", code=code, time=2.0, error=error)
    assert fault_of([exit]).exit_code == shown
