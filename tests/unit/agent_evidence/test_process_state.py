"""What /proc shows of real processes, and the names of system calls."""

import os
import signal

import pytest
from real_processes import python_rank, running, until

from echelon.agent.process_state import (
    NAMES,
    WITH_DESCRIPTOR,
    WITH_FOLDER,
    WITH_PATH,
    SystemCall,
    child_pids,
    parse_system_call,
    process_state,
)
from echelon.diagnosis.evidence import ProcessState
from echelon.system import processes


@pytest.fixture
def pipe(tmp_path):
    os.mkfifo(tmp_path / "shard.bin")
    return tmp_path / "shard.bin"


def test_sleeping_process_is_in_its_system_call():
    with running("sleep", "600") as process:
        found = until(lambda: _in_call(process.pid, "clock_nanosleep"))
    assert (found.state, found.path, found.command, found.name) == ("S", "", "sleep 600", "sleep")


def test_process_that_opens_a_file_has_its_path(pipe):
    with running("cat", pipe) as process:
        found = until(lambda: _in_call(process.pid, "openat"))
    assert (found.state, found.path) == ("S", str(pipe))


def test_relative_path_is_joined_with_the_working_folder(pipe):
    with running("cat", pipe.name, cwd=pipe.parent) as process:
        assert until(lambda: _in_call(process.pid, "openat")).path == str(pipe)


def test_process_that_reads_a_file_has_its_path(pipe):
    writer = os.open(pipe, os.O_RDWR)
    with running("cat", pipe) as process:
        assert until(lambda: _in_call(process.pid, "read")).path == str(pipe)
    os.close(writer)


def test_process_that_reads_a_pipe_has_no_file():
    read, write = os.pipe()
    with running("cat", stdin=read) as process:
        assert until(lambda: _in_call(process.pid, "read")).path.startswith("pipe:[")
    os.close(read)
    os.close(write)


def test_stopped_process_has_state_t():
    with running("sleep", "600") as process:
        process.send_signal(signal.SIGSTOP)
        assert until(lambda: process_state(process.pid).state == "T")


def test_ended_process_has_only_its_pid():
    with running("true") as process:
        process.wait()
        assert process_state(process.pid) == ProcessState(pid=process.pid)


def test_command_is_cleaned_and_limited():
    with running("sh", "-c", "sleep 600; :", "\x1b[31m" + "x" * 500) as process:
        found = until(lambda: process_state(process.pid).command.startswith("sh -c") and process_state(process.pid))
        children = until(lambda: processes.children(process.pid))
        for child in children:
            os.kill(child, signal.SIGKILL)
    assert "\x1b" not in found.command
    assert len(found.command) <= 203


def test_children_are_python_processes_only(tmp_path):
    with python_rank(tmp_path, fork=True) as (pid, _):
        assert len(until(lambda: child_pids(pid))) == 1
    with running("sh", "-c", "sleep 600; :") as process:
        (child,) = until(lambda: processes.children(process.pid))
        assert child_pids(process.pid) == []
        os.kill(child, signal.SIGKILL)


def _in_call(pid, name):
    found = process_state(pid)
    return found if found.system_call == name else None


ARGS = "0x3 0x7ffd0 0x2 0x0 0x0 0x0 0x7ffde8 0x7f0a1"
NUMBERS = (3, 0x7FFD0, 2, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "machine", "name"),
    [
        (f"0 {ARGS}", "x86_64", "read"),
        (f"63 {ARGS}", "aarch64", "read"),
        (f"257 {ARGS}", "x86_64", "openat"),
        (f"56 {ARGS}", "aarch64", "openat"),
        (f"202 {ARGS}", "x86_64", "futex"),
        (f"230 {ARGS}", "x86_64", "clock_nanosleep"),
        (f"9999 {ARGS}", "x86_64", ""),
        (f"0 {ARGS}", "riscv64", ""),
    ],
)
def test_numbers_have_names_on_each_machine(text, machine, name):
    assert parse_system_call(text, machine) == SystemCall(name=name, args=NUMBERS)


@pytest.mark.parametrize("text", ["", "running\n", "x y z"])
def test_process_outside_system_calls_has_none(text):
    assert parse_system_call(text, "x86_64") == SystemCall(name="")


def test_blocked_outside_of_a_system_call_has_no_name():
    assert parse_system_call("-1 0x7ffd0 0x7f0a1", "x86_64").name == ""


@pytest.mark.parametrize(
    ("text", "name"), [("23 0x0 0x0 0x0 0x0 0x7f", "nanosleep"), ("23 0x5 0x7f 0x0 0x0 0x0", "select")]
)
def test_select_without_descriptors_is_a_sleep(text, name):
    assert parse_system_call(text, "x86_64").name == name


def test_calls_with_files_are_in_the_tables():
    known = set(NAMES["x86_64"].values())
    assert known >= WITH_DESCRIPTOR | WITH_FOLDER | WITH_PATH
    assert not WITH_DESCRIPTOR & WITH_FOLDER
