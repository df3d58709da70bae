"""What the kernel tells about real processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import echelon
from echelon.node import processes

ABSENT = 2**22 + 1  # above the kernel's largest pid

NAP = "import time; time.sleep(600)"
SPIN = "while True: pass"
FAMILY = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {NAP!r}])
print(child.pid, flush=True)
child.wait()
"""


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


@pytest.fixture
def start():
    started = []

    def start(code, **options):
        process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def is_gone(pid):
    return processes.start_time(pid) is None


def test_children_and_descendants_are_found(start):
    parent = start(FAMILY)
    child = int(parent.stdout.readline())
    assert processes.children(parent.pid) == [child]
    assert processes.descendants(parent.pid) == [child]
    assert {parent.pid, child} <= set(processes.descendants(os.getpid()))
    processes.kill_descendants(parent.pid)
    until(lambda: is_gone(child))


def test_a_process_is_known_by_its_pid_and_start_time(start):
    process = start(NAP)
    first = processes.start_time(process.pid)
    assert isinstance(first, int)
    assert processes.start_time(process.pid) == first
    process.kill()
    process.wait()
    assert processes.start_time(process.pid) is None


def test_one_that_has_died_but_was_not_reaped_is_gone(start):
    process = start("pass")
    until(lambda: is_gone(process.pid))
    assert process.returncode is None


def test_a_name_with_spaces_and_brackets_is_no_trouble(start, tmp_path):
    program = tmp_path / "a ) b (c"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"])
    assert processes.start_time(process.pid) is not None
    assert not processes.is_stopped(process.pid)
    process.kill()
    process.wait()


def test_a_stopped_process_is_seen(start):
    process = start(NAP)
    assert not processes.is_stopped(process.pid)
    process.send_signal(signal.SIGSTOP)
    until(lambda: processes.is_stopped(process.pid))
    process.send_signal(signal.SIGCONT)
    until(lambda: not processes.is_stopped(process.pid))


def test_cpu_time_grows_with_work_and_includes_the_children(start):
    parent = start(FAMILY.replace(NAP, SPIN))
    child = int(parent.stdout.readline())
    until(lambda: processes.cpu_seconds(child) > 0.1)
    assert processes.cpu_seconds(parent.pid) > 0.1
    processes.send_signal(child, signal.SIGKILL)


def test_a_handler_is_seen(start):
    code = "import signal, time; signal.signal(signal.SIGUSR1, print); print('set', flush=True); time.sleep(600)"
    process = start(code)
    process.stdout.readline()
    assert processes.catches(process.pid, signal.SIGUSR1)
    assert not processes.catches(process.pid, signal.SIGUSR2)


def test_a_signal_that_is_ignored_is_not_caught(start):
    code = "import signal, time; signal.signal(signal.SIGUSR1, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    process = start(code)
    process.stdout.readline()
    assert not processes.catches(process.pid, signal.SIGUSR1)


def test_nothing_is_known_of_a_process_that_is_not_there():
    assert processes.children(ABSENT) == []
    assert processes.descendants(ABSENT) == []
    assert processes.start_time(ABSENT) is None
    assert not processes.is_stopped(ABSENT)
    assert processes.cpu_seconds(ABSENT) == 0
    assert not processes.catches(ABSENT, signal.SIGUSR1)


def test_signalling_one_that_is_gone_is_no_error():
    processes.send_signal(ABSENT, signal.SIGTERM)
    processes.send_group_signal(ABSENT, signal.SIGTERM)
    processes.kill_descendants(ABSENT)


def test_a_group_signal_reaches_the_whole_group(start):
    leader = start(FAMILY, start_new_session=True)
    child = int(leader.stdout.readline())
    processes.send_group_signal(leader.pid, signal.SIGKILL)
    assert leader.wait(30) == -signal.SIGKILL
    until(lambda: is_gone(child))


def test_a_group_signal_reaches_one_that_leads_no_group_yet(start):
    process = start(NAP)
    processes.send_group_signal(process.pid, signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


WITH_ECHELON = {**os.environ, "PYTHONPATH": str(Path(echelon.__file__).parents[1])}
MORTAL = """
import os, sys, time
from echelon.node import kinship
parent = os.getpid()
if os.fork() == 0:
    kinship.die_with_parent({parent})
    {and_then}
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.005)
    print("outlived", flush=True)
time.sleep(600)
"""


def mortal(start, parent="parent", and_then="pass"):
    return start(MORTAL.format(parent=parent, and_then=and_then), env=WITH_ECHELON)


def test_one_that_dies_with_its_parent_does(start):
    parent = mortal(start)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: is_gone(child))


def test_one_whose_parent_had_already_gone_leaves_at_once(start):
    parent = mortal(start, parent="1 << 30")
    until(lambda: processes.children(parent.pid) and all(map(is_gone, processes.children(parent.pid))))


def test_one_that_has_something_to_clean_up_stays(start):
    parent = mortal(start, and_then="kinship.stay_without_parent()")
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    assert parent.stdout.readline() == b"outlived\n"
    processes.send_signal(child, signal.SIGKILL)


def test_orphans_are_adopted(start):
    code = f"""
import subprocess, sys, time
from echelon.node import kinship, processes
kinship.adopt_orphans()
middle = subprocess.Popen([sys.executable, "-c", {FAMILY!r}], stdout=subprocess.PIPE, text=True)
orphan = int(middle.stdout.readline())
middle.kill()
middle.wait()
print(orphan in processes.children(__import__("os").getpid()), flush=True)
processes.send_signal(orphan, 9)
"""
    process = start(code, env=WITH_ECHELON)
    assert process.stdout.readline() == b"True\n"
