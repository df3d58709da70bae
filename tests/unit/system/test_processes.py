"""Facts about real processes from /proc, and signals to them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import echelon
from echelon.system import processes

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


def test_unreaped_dead_process_does_not_run(start):
    process = start("pass")
    until(lambda: is_gone(process.pid))
    assert process.returncode is None


def test_process_name_with_spaces_and_brackets_is_parsed(start, tmp_path):
    program = tmp_path / "a ) b (c"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "600"])
    assert processes.start_time(process.pid) is not None
    assert not processes.is_stopped(process.pid)
    process.kill()
    process.wait()


def test_stopped_process_is_detected(start):
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


def test_signal_handler_is_detected(start):
    code = "import signal, time; signal.signal(signal.SIGUSR1, print); print('set', flush=True); time.sleep(600)"
    process = start(code)
    process.stdout.readline()
    assert processes.has_handler(process.pid, signal.SIGUSR1)
    assert not processes.has_handler(process.pid, signal.SIGUSR2)


def test_a_signal_that_is_ignored_is_not_caught(start):
    code = "import signal, time; signal.signal(signal.SIGUSR1, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    process = start(code)
    process.stdout.readline()
    assert not processes.has_handler(process.pid, signal.SIGUSR1)


def test_nothing_is_known_of_a_process_that_is_not_there():
    assert processes.children(ABSENT) == []
    assert processes.descendants(ABSENT) == []
    assert processes.start_time(ABSENT) is None
    assert not processes.is_stopped(ABSENT)
    assert processes.cpu_seconds(ABSENT) == 0
    assert not processes.has_handler(ABSENT, signal.SIGUSR1)


def test_signalling_an_ended_process_is_not_an_error():
    processes.send_signal(ABSENT, signal.SIGTERM)
    processes.send_group_signal(ABSENT, signal.SIGTERM)
    processes.kill_descendants(ABSENT)


def test_a_group_signal_reaches_the_whole_group(start):
    leader = start(FAMILY, start_new_session=True)
    child = int(leader.stdout.readline())
    processes.send_group_signal(leader.pid, signal.SIGKILL)
    assert leader.wait(30) == -signal.SIGKILL
    until(lambda: is_gone(child))


def test_group_signal_reaches_a_process_without_own_group(start):
    process = start(NAP)
    processes.send_group_signal(process.pid, signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL


WITH_ECHELON = {**os.environ, "PYTHONPATH": str(Path(echelon.__file__).parents[1])}
MORTAL = """
import os, sys, time
from echelon.system import processes
parent = os.getpid()
if os.fork() == 0:
    processes.die_with_parent({parent})
    {and_then}
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.005)
    print("outlived", flush=True)
time.sleep(600)
"""


def mortal(start, parent="parent", and_then="pass"):
    return start(MORTAL.format(parent=parent, and_then=and_then), env=WITH_ECHELON)


def test_process_with_the_setting_dies_with_its_parent(start):
    parent = mortal(start)
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    until(lambda: is_gone(child))


def test_process_with_a_dead_parent_exits_at_once(start):
    parent = mortal(start, parent="1 << 30")
    until(lambda: processes.children(parent.pid) and all(map(is_gone, processes.children(parent.pid))))


def test_process_with_cleanup_outlives_its_parent(start):
    parent = mortal(start, and_then="processes.stay_without_parent()")
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    assert parent.stdout.readline() == b"outlived\n"
    processes.send_signal(child, signal.SIGKILL)


def test_orphans_are_adopted(start):
    code = f"""
import subprocess, sys, time
from echelon.system import processes
processes.set_subreaper()
middle = subprocess.Popen([sys.executable, "-c", {FAMILY!r}], stdout=subprocess.PIPE, text=True)
orphan = int(middle.stdout.readline())
middle.kill()
middle.wait()
print(orphan in processes.children(__import__("os").getpid()), flush=True)
processes.send_signal(orphan, 9)
"""
    process = start(code, env=WITH_ECHELON)
    assert process.stdout.readline() == b"True\n"


REAPER = """
import os, sys
from echelon.system import processes
if os.fork() == 0:
    block = b"x" * (64 << 20)
    os._exit(3)
if os.fork() == 0:
    os.kill(os.getpid(), 9)
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
ended = []
while len(ended) < 2:
    ended += processes.reap_children()
print(sorted((child.code, child.peak > 64 << 20) for child in ended), list(processes.reap_children()))
"""


def test_reaped_children_have_their_code_and_peak(start):
    source = str(Path(echelon.__file__).parents[1])
    reaper = start(REAPER, env={**os.environ, "PYTHONPATH": source})
    assert reaper.stdout.readline() == b"[(-9, False), (3, True)] []\n"
