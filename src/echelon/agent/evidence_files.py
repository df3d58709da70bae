"""Collects the evidence of a hang on this node and saves it in the attempt's evidence folder."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from echelon.agent.context import AgentContext
from echelon.agent.evidence import CollectedRank, EvidenceCollector, RankSource
from echelon.agent.ranks import RankSet
from echelon.codec import encode
from echelon.diagnosis.evidence import ProcessState, RankEvidence
from echelon.errors import EchelonError
from echelon.text import mask_secrets, mask_values

COLLECT_SECONDS = 3.0
MOST_FLIGHT_BYTES = 4 << 20
"""A larger record is not saved. The evidence has its newest entries."""
MOST_ATTEMPT_BYTES = 256 << 20
"""Records of all nodes in all generations of an attempt. Stacks and states are small and always saved."""


class FlightBudget:
    """The bytes of flight records that this node may still save. Each node has the same share."""

    def __init__(self, nodes: int) -> None:
        self._left = MOST_ATTEMPT_BYTES // max(1, nodes)

    def take(self, size: int) -> bool:
        """Whether a record of this size may be saved."""
        if not 0 < size <= min(MOST_FLIGHT_BYTES, self._left):
            return False
        self._left -= size
        return True


class EvidenceCollection:
    """Evidence of all living ranks of a node, collected in threads while the agent's loop continues."""

    def __init__(self, generation: int, ranks: RankSet, context: AgentContext, budget: FlightBudget) -> None:
        self._budget = budget
        self.generation = generation
        self._context = context
        self._collector = EvidenceCollector(_rank_sources(ranks, context), seconds=COLLECT_SECONDS)

    @property
    def is_done(self) -> bool:
        return self._collector.is_done

    def save(self) -> tuple[tuple[RankEvidence, ...], str]:
        """Writes the files of each rank. Returns the evidence, and why a file could not be written. Needs `is_done`."""
        collected, problem = [_without_secrets(one) for one in self._collector.result], ""
        for one in collected:
            try:
                self._save_rank(one)
            except (OSError, EchelonError) as error:
                problem = str(error)
        return tuple(one.evidence for one in collected), problem

    def _save_rank(self, one: CollectedRank) -> None:
        attempt, sinks, rank = self._context.attempt, self._context.sinks, one.evidence.rank
        log = sinks.log(attempt.rank_stacks(rank, self.generation))
        log.write(format_stacks(one, self.generation).encode(errors="replace"))
        log.close()
        text = json.dumps(mask_values(encode(one.evidence)), indent=1)
        sinks.write_file(attempt.rank_evidence(rank, self.generation), text.encode())
        if self._budget.take(len(one.flight_json)):
            sinks.write_file(attempt.rank_flight(rank, self.generation), one.flight_json)


def _rank_sources(ranks: RankSet, context: AgentContext) -> list[RankSource]:
    return [
        RankSource(
            rank=member.rank,
            host=context.host,
            pid=member.pid,
            stacks_file=context.node_dir.stacks(member.rank),
            server=context.node_dir.worker_server(member.rank),
            step=context.node_dir.read_progress(member.rank)[0],
        )
        for member in ranks.living_members()
        if member.pid is not None
    ]


def _without_secrets(one: CollectedRank) -> CollectedRank:
    evidence = one.evidence
    children = tuple(replace(child, process=_mask_secrets(child.process)) for child in evidence.children)
    process = None if evidence.process is None else _mask_secrets(evidence.process)
    return replace(one, evidence=replace(evidence, process=process, children=children))


def _mask_secrets(process: ProcessState) -> ProcessState:
    return replace(process, command=mask_secrets(process.command))


def format_stacks(one: CollectedRank, generation: int) -> str:
    """The kernel's state of the rank and its children, and the Python stacks if there are any."""
    evidence = one.evidence
    known = [evidence.process] if evidence.process is not None else []
    lines = [f"{time.strftime('%Y-%m-%d %H:%M:%S')}, generation {generation}", ""]
    lines += [_format_process(process) for process in (*known, *(child.process for child in evidence.children))]
    lines += ["", one.stacks_text or "no Python stacks: not a Python process, or it did not respond"]
    return mask_secrets("\n".join(lines)) + "\n"


def _format_process(process: ProcessState) -> str:
    waits = f"waits in {process.wait_channel}" if process.wait_channel else ""
    call = f"{process.system_call} {process.path}".strip()
    parts = (
        f"pid {process.pid}",
        f"state {process.state or 'ended'}",
        waits,
        call,
        process.command[:200],
    )
    return "  ".join(filter(None, parts))
