"""Ranks that were ended from outside: by the kernel, the scheduler, a process of echelon, or a person."""

import pytest

from echelon.diagnosis.deaths import (
    Cause,
    DeathEvidence,
    MemoryFacts,
    Parent,
    explain_death,
)

GIB = 1 << 30
KILL, TERM, INT = -9, -15, -2


def death(code=KILL, **facts):
    return explain_death(DeathEvidence(code=code, **facts), 1, "n1")


def memory(kills=None, **facts):
    before, after = (None, None) if kills is None else (2, 2 + kills)
    return MemoryFacts(kills_before=before, kills_after=after, **facts)


@pytest.mark.parametrize("code", [KILL, 137])
def test_kill_of_the_kernel_is_out_of_memory(code):
    found = death(code, memory=memory(1, limit=16 * GIB, peak=16 * GIB, rank_peak=5 * GIB))
    assert found.cause is Cause.OUT_OF_MEMORY
    assert found.sentence == "the kernel killed rank 1 on n1 for memory: limit 16 GiB, peak 16 GiB"
    assert found.hint.startswith("--mem SIZE asks for more memory per node than 16 GiB")
    assert found.details == ("peak of the rank's own process: 5 GiB",)


def test_kill_of_the_kernel_without_a_limit_names_the_machine():
    found = death(memory=memory(1, peak=60 * GIB, machine_bytes=64 * GIB))
    assert found.sentence == "the kernel killed rank 1 on n1 for memory: no limit, peak 60 GiB"
    assert found.details == ("memory of the machine: 64 GiB",)


def test_kill_without_a_record_of_memory_was_sent():
    found = death(memory=memory(0, limit=16 * GIB, peak=2 * GIB))
    assert found.cause is Cause.KILLED
    assert found.sentence == (
        "rank 1 on n1 was killed by SIGKILL; the cgroup recorded no memory kill (limit 16 GiB, peak 2 GiB): "
        "the signal was sent by a user or another program"
    )
    assert "--mem" not in found.hint


def test_kill_without_any_facts_blames_nothing():
    found = death()
    assert found.cause is Cause.KILLED
    assert found.sentence == "rank 1 on n1 was killed by SIGKILL; no memory record of its cgroup is available"


def test_shell_that_reports_a_kill_is_quoted_with_its_code():
    assert death(137).sentence.startswith("rank 1 on n1 exited with code 137 (its command was killed by SIGKILL)")


@pytest.mark.parametrize(
    ("facts", "support"),
    [
        (memory(limit=16 * GIB, rank_peak=15 * GIB), "it used 15 GiB of 16 GiB"),
        (memory(0, limit=16 * GIB, rank_peak=15 * GIB), "it used 15 GiB of 16 GiB"),
        (memory(machine_bytes=16 * GIB, rank_peak=15 * GIB), "it used 15 GiB of 16 GiB"),
        (memory(machine_kills_before=4, machine_kills_after=5), "kills for memory on this machine in that time: 1"),
    ],
)
def test_kill_with_support_is_probably_out_of_memory(facts, support):
    found = death(memory=facts)
    assert found.cause is Cause.PROBABLY_MEMORY
    assert found.sentence == f"rank 1 on n1 was killed by SIGKILL, probably for memory: {support}"


@pytest.mark.parametrize(
    "facts",
    [
        memory(0, limit=16 * GIB, peak=16 * GIB, rank_peak=2 * GIB),  # the peak includes the file cache
        memory(0, machine_kills_before=4, machine_kills_after=5),  # a kill in another job
        memory(machine_kills_before=4, machine_kills_after=4),
        memory(limit=16 * GIB, rank_peak=8 * GIB),
    ],
)
def test_kill_without_support_is_not_out_of_memory(facts):
    assert death(memory=facts).cause is Cause.KILLED


def test_kill_in_another_cgroup_is_a_detail():
    found = death(memory=memory(0, machine_kills_before=4, machine_kills_after=6))
    assert found.details == ("the kernel killed 2 of the machine's other processes for memory",)


def test_decreasing_kill_count_counts_as_none():
    assert MemoryFacts(kills_before=5, kills_after=0).kills == 0


@pytest.mark.parametrize(("parent", "cause"), [(Parent.STARTER, Cause.STARTER_DIED), (Parent.AGENT, Cause.AGENT_DIED)])
def test_dead_parent_is_blamed_and_not_the_rank(parent, cause):
    found = death(dead_parent=parent, memory=memory(0, limit=GIB))
    assert found.cause is cause
    assert found.sentence == f"the {parent.value} on n1 died; rank 1 on n1 was killed with it"


def test_parent_that_the_kernel_killed_is_out_of_memory():
    found = death(dead_parent=Parent.STARTER, memory=memory(1, limit=16 * GIB, peak=16 * GIB))
    assert found.cause is Cause.OUT_OF_MEMORY
    assert found.sentence == (
        "the kernel killed the starter on n1 for memory: limit 16 GiB, peak 16 GiB; rank 1 on n1 died with it"
    )


def test_exception_before_the_death_of_the_parent_is_the_cause():
    assert death(1, dead_parent=Parent.AGENT, error_type="ValueError").cause is Cause.EXCEPTION
    assert death(-11, dead_parent=Parent.AGENT).cause is Cause.SEGFAULT


@pytest.mark.parametrize(("code", "name"), [(TERM, "SIGTERM"), (INT, "SIGINT"), (-1, "SIGHUP"), (-10, "SIGUSR1")])
def test_other_signals_are_named(code, name):
    found = death(code)
    assert found.cause is Cause.ENDED_BY_SIGNAL
    assert found.sentence == f"rank 1 on n1 was killed by {name}: the signal was sent by a user or another program"


def test_unknown_signal_is_named_by_its_number():
    assert "signal 99" in death(-99).sentence
