"""Explains ranks that were ended from outside: by the kernel, a dead process of echelon, or a user."""

from __future__ import annotations

import signal

from echelon.diagnosis.causes import HINTS, LESS_MEMORY, RESTART, Cause, Death, death
from echelon.diagnosis.death_evidence import DeathEvidence, MemoryFacts, Parent
from echelon.text import format_size

FIRST_SHELL_CODE = 128
NEARLY_ALL = 0.9
"""From this share of the limit on, the memory of the rank supports a kill for memory."""
SHELL_SIGNALS = frozenset(
    {"SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGSEGV", "SIGTERM", "SIGXCPU"}
)
"""A shell exits with 128 plus the number of the signal that ended its command."""


def signal_of(code: int) -> int | None:
    """The signal that ended the rank, or the command of a shell that reports it by its exit code."""
    if code < 0:
        return -code
    number = code - FIRST_SHELL_CODE
    return number if number > 0 and signal_name(number) in SHELL_SIGNALS else None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_clause(code: int) -> str:
    """How the rank ended: by a signal itself, or by the exit code of a shell."""
    name = signal_name(signal_of(code) or 0)
    return f"was killed by {name}" if code < 0 else f"exited with code {code} (its command was killed by {name})"


def explain_parent(evidence: DeathEvidence, who: str, host: str) -> Death | None:
    """For a rank that died with the starter or the agent of its node."""
    if evidence.dead_parent is None or evidence.error_type or evidence.code not in (-signal.SIGKILL, -signal.SIGTERM):
        return None
    name = f"the {evidence.dead_parent.value} on {host}"
    cause = Cause.STARTER_DIED if evidence.dead_parent is Parent.STARTER else Cause.AGENT_DIED
    if evidence.memory.kills:
        return _memory_death(f"the kernel killed {name}", evidence.memory, f"{who} died with it")
    return death(cause, f"{name} died; {who} was killed with it", details=memory_lines(evidence.memory))


def explain_kill(evidence: DeathEvidence, who: str) -> Death | None:
    """For a rank that was killed by SIGKILL."""
    if signal_of(evidence.code) != signal.SIGKILL:
        return None
    memory, clause = evidence.memory, signal_clause(evidence.code)
    if memory.kills:
        return _memory_death(f"the kernel killed {who}", memory, "")
    support = _support_for_memory(memory)
    if support:
        sentence = f"{who} {clause}, probably for memory: {support}"
        return death(Cause.PROBABLY_MEMORY, sentence, details=memory_lines(memory))
    if memory.kills is None:
        sentence = f"{who} {clause}; no memory record of its cgroup is available"
        return death(Cause.KILLED, sentence, hint=f"{HINTS[Cause.PROBABLY_MEMORY]}; {RESTART}")
    facts = f"the cgroup recorded no memory kill ({_limit_and_peak(memory)})"
    return death(
        Cause.KILLED,
        f"{who} {clause}; {facts}: the signal was sent by a user or another program",
        details=_other_kills(memory),
    )


def explain_end(evidence: DeathEvidence, who: str) -> Death | None:
    """For a rank that was ended by SIGTERM, SIGINT and the like."""
    number = signal_of(evidence.code)
    if number is None:
        return None
    name = signal_name(number)
    sentence = f"{who} {signal_clause(evidence.code)}"
    return death(Cause.ENDED_BY_SIGNAL, f"{sentence}: the signal was sent by a user or another program", signature=name)


def _memory_death(head: str, memory: MemoryFacts, tail: str) -> Death:
    sentence = f"{head} for memory: {_limit_and_peak(memory)}" + (f"; {tail}" if tail else "")
    hint = ""
    if memory.limit is not None:
        hint = f"--mem SIZE asks for more memory per node than {format_size(memory.limit)}; or {LESS_MEMORY}"
    return death(Cause.OUT_OF_MEMORY, sentence, hint=hint, details=memory_lines(memory))


def _support_for_memory(memory: MemoryFacts) -> str:
    """The fact that supports a kill for memory without a record of the cgroup; empty if there is none."""
    if memory.kills is None and memory.machine_kills:
        return f"kills for memory on this machine in that time: {memory.machine_kills}"
    limit = memory.limit if memory.limit is not None else memory.machine_bytes
    if limit and memory.rank_peak is not None and memory.rank_peak >= NEARLY_ALL * limit:
        return f"it used {format_size(memory.rank_peak)} of {format_size(limit)}"
    return ""


def memory_lines(memory: MemoryFacts) -> tuple[str, ...]:
    """Detail lines: the rank's own memory, and the memory of the machine if the cgroup has no limit."""
    lines = []
    if memory.rank_peak is not None:
        lines.append(f"peak of the rank's own process: {format_size(memory.rank_peak)}")
    if memory.limit is None and memory.machine_bytes is not None:
        lines.append(f"memory of the machine: {format_size(memory.machine_bytes)}")
    return tuple(lines)


def _limit_and_peak(memory: MemoryFacts) -> str:
    limit = f"limit {format_size(memory.limit)}" if memory.limit is not None else "no limit"
    return limit if memory.peak is None else f"{limit}, peak {format_size(memory.peak)}"


def _other_kills(memory: MemoryFacts) -> tuple[str, ...]:
    if not memory.machine_kills:
        return ()
    return (f"the kernel killed {memory.machine_kills} of the machine's other processes for memory",)
