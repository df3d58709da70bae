"""Evidence of real processes that stand in for ranks."""

import os
import signal
import time

from real_processes import python_rank, running, until

from echelon.agent.evidence import EvidenceCollector, RankSource, collect, dump_stacks
from echelon.agent.process_state import child_pids, process_state
from echelon.diagnosis.stacks import parse_stacks


def later():
    return time.monotonic() + 30


def source(pid, stacks, **more):
    return RankSource(rank=3, host="n1", pid=pid, stacks_file=stacks, server=stacks.parent / "server-3", **more)


def test_stacks_of_a_process(tmp_path):
    with python_rank(tmp_path) as (pid, stacks):
        text = dump_stacks(pid, stacks, later())
    assert [frame.function for frame in parse_stacks(text)[0].frames] == ["in_parent", "<module>"]


def test_second_dump_has_only_the_new_text(tmp_path):
    with python_rank(tmp_path) as (pid, stacks):
        dumps = [dump_stacks(pid, stacks, later()) for _ in range(2)]
    assert [text.count("in in_parent") for text in dumps] == [1, 1]


def test_forked_child_writes_into_the_same_file(tmp_path):
    with python_rank(tmp_path, fork=True) as (pid, stacks):
        (child,) = until(lambda: child_pids(pid))
        until(lambda: process_state(child).system_call == "clock_nanosleep")
        texts = [dump_stacks(one, stacks, later()) for one in (pid, child)]
    assert ["in in_child" in text for text in texts] == [False, True]


def test_process_without_handler_is_not_signalled(tmp_path):
    with running("sleep", "600") as process:
        assert dump_stacks(process.pid, tmp_path / "stacks", later()) == ""
        assert process_state(process.pid).state in ("S", "R", "D")


def test_evidence_of_one_rank(tmp_path):
    with python_rank(tmp_path) as (pid, stacks):
        until(lambda: process_state(pid).system_call == "clock_nanosleep")
        found = collect(source(pid, stacks, idle_seconds=41.0, step=7), deadline=later())
    evidence = found.evidence
    assert (evidence.rank, evidence.host, evidence.idle_seconds, evidence.step) == (3, "n1", 41.0, 7)
    assert (evidence.process.pid, evidence.process.system_call) == (pid, "clock_nanosleep")
    assert (evidence.threads[0].frames[0].function, evidence.threads[0].frames[0].call) == ("in_parent", "time.sleep")
    assert not evidence.has_flight
    assert "in in_parent" in found.stacks_text


def test_evidence_has_the_stacks_of_children(tmp_path):
    with python_rank(tmp_path, fork=True) as (pid, stacks):
        (child,) = until(lambda: child_pids(pid))
        until(lambda: process_state(child).system_call == "clock_nanosleep")
        evidence = collect(source(pid, stacks), deadline=later()).evidence
    (found,) = evidence.children
    assert (found.process.pid, found.threads[0].frames[0].function) == (child, "in_child")


def test_stack_of_a_stopped_rank_is_not_requested(tmp_path):
    with python_rank(tmp_path) as (pid, stacks):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: process_state(pid).state == "T")
        evidence = collect(source(pid, stacks), deadline=later()).evidence
    assert (evidence.process.state, evidence.threads) == ("T", ())
    assert stacks.read_bytes() == b""


def test_collector_has_one_result_for_each_rank(tmp_path):
    with python_rank(tmp_path) as (pid, stacks), running("sleep", "600") as other:
        sources = [source(pid, stacks), RankSource(rank=4, host="n1", pid=other.pid, stacks_file=stacks, server=stacks)]
        collector = EvidenceCollector(sources, seconds=30)
        until(lambda: collector.is_done)
        found = collector.result
    assert [one.evidence.rank for one in found] == [3, 4]
    assert [len(one.evidence.threads) for one in found] == [1, 0]


def test_collector_without_time_has_ranks_without_evidence(tmp_path):
    collector = EvidenceCollector([source(os.getpid(), tmp_path / "stacks")], seconds=0)
    assert collector.is_done
    assert [one.evidence.rank for one in collector.result] == [3]


def test_ended_rank_has_no_evidence(tmp_path):
    with running("true") as process:
        process.wait()
        evidence = collect(source(process.pid, tmp_path / "stacks"), deadline=later()).evidence
    assert (evidence.process.state, evidence.threads, evidence.children) == ("", (), ())
