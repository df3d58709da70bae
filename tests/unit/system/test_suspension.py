"""A job that was stopped and continued: timeouts restart, and ranks stop with their agent."""

import os
import signal
import subprocess
import sys

import pytest

from echelon.supervisor.clock import Clock
from echelon.supervisor.hangs import HangDetector
from echelon.supervisor.state import NoticeDue
from echelon.system import processes
from echelon.system.suspension import AgentFollower, CutOffDetector, PauseDetector
from echelon.wire.messages import Sample
from running import wait_for

IDLE = Sample(rank=0, lines=0, cpu_seconds=0.0, stopped=False)


def test_ordinary_turns_are_not_a_jump():
    pauses = PauseDetector(100.0, heartbeat=15.0)
    assert [pauses.seconds_paused(100.0 + turn) for turn in (0.25, 0.5, 1.5)] == [0.0, 0.0, 0.0]


def test_a_jump_is_reported_once_with_its_length():
    pauses = PauseDetector(100.0, heartbeat=15.0)
    assert pauses.seconds_paused(160.0) == 60.0
    assert pauses.seconds_paused(160.25) == 0.0


def test_a_short_heartbeat_makes_shorter_jumps_count():
    assert PauseDetector(100.0, heartbeat=3.0).seconds_paused(101.5) == 1.5


def test_hang_timeout_starts_again_after_a_jump():
    watch = HangDetector(started=0.0, expected=1)
    watch.observe(0.0, [IDLE])
    watch.restart_timeouts(1000.0)
    assert watch.hang_sentence(1059.0, 60.0) is None
    assert watch.hang_sentence(1060.0, 60.0) is not None


def test_an_agent_without_heartbeats_is_cut_off():
    detector = CutOffDetector(0.0, heartbeat=12.0)
    assert not detector.is_cut_off(9.0)
    assert detector.is_cut_off(9.1)


def test_an_agent_that_was_frozen_waits_for_the_next_heartbeat():
    detector = CutOffDetector(0.0, heartbeat=12.0)
    detector.extend_once(3600.0)
    assert not detector.is_cut_off(3603.0)
    assert detector.is_cut_off(3603.1)
    detector.restart_timeouts(3602.0)
    assert not detector.is_cut_off(3611.0)


def test_slow_turns_of_an_agent_do_not_hide_that_it_is_cut_off():
    detector = CutOffDetector(0.0, heartbeat=12.0)
    for now in (4.0, 8.0, 12.0, 16.0):
        detector.extend_once(now)
    assert detector.is_cut_off(16.0)


def test_time_limit_does_not_count_the_stopped_time():
    clock = Clock(end_at=100.0, notice_seconds=10.0)
    clock.postpone_end(50.0)
    assert list(clock.due_events(139.0)) == []
    assert list(clock.due_events(140.0)) == [NoticeDue()]


STARTER = """
import subprocess, sys, time
ranks = [subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2)]
print(*(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
for rank in ranks:
    rank.kill()
"""


@pytest.fixture
def starter():
    """A process with two children in sessions of their own, as ranks are; and their pids."""
    argv = [sys.executable, "-c", STARTER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.pid, tuple(map(int, process.stdout.readline().split()))


@pytest.fixture
def agent():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: processes.is_stopped(pid), "SIGSTOP")


def test_ranks_stop_and_continue_with_their_agent(agent, starter):
    pid, (rank, stopped_before) = starter
    follow = AgentFollower(agent, pid)
    stop(stopped_before)
    stop(agent)
    follow.follow()
    wait_for(lambda: processes.is_stopped(rank), "the rank to stop")
    os.kill(agent, signal.SIGCONT)
    wait_for(lambda: not processes.is_stopped(agent), "SIGCONT")
    follow.follow()
    wait_for(lambda: not processes.is_stopped(rank), "the rank to continue")
    assert processes.is_stopped(stopped_before)


def test_workers_of_a_launcher_elsewhere_stop_with_the_agent(agent, starter):
    worker, (rank, _) = starter
    follow = AgentFollower(agent, agent)
    follow.workers = ((worker, processes.start_time(worker)),)
    stop(agent)
    follow.follow()
    wait_for(lambda: all(map(processes.is_stopped, (worker, rank))), "worker and rank to stop")
    os.kill(agent, signal.SIGCONT)
    wait_for(lambda: not processes.is_stopped(agent), "SIGCONT")
    follow.follow()
    wait_for(lambda: not any(map(processes.is_stopped, (worker, rank))), "worker and rank to continue")


def test_process_with_a_reused_worker_pid_is_not_stopped(agent, starter):
    worker, (rank, _) = starter
    follow = AgentFollower(agent, agent)
    follow.workers = ((worker, processes.start_time(worker) - 1),)
    stop(agent)
    follow.follow()
    assert not processes.is_stopped(worker)
    assert not processes.is_stopped(rank)
