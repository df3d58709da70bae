"""File names of one attempt of a run."""

from __future__ import annotations

import os
from pathlib import Path

EVIDENCE = "evidence"


class AttemptDir:
    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number

    def node_index(self, host: str) -> Path:
        """Records the order of all output of a node."""
        return self.path / f"{host}.index"

    def entry_errors(self, host: str) -> Path:
        """Error output from entering the environment on a host. Deleted when the environment is entered."""
        return self.path / f"{host}.words"

    def node_indices(self) -> list[Path]:
        return sorted(self.path.glob("*.index"))

    def rank_log(self, rank: int) -> Path:
        return self.path / f"rank-{rank}.out"

    def evidence_of(self, generation: int) -> Path:
        """The folder with what was collected about a hang of this generation."""
        return self.path / EVIDENCE / f"generation-{generation}"

    def analysis(self, generation: int) -> Path:
        """The supervisor's verdict, with the reasons."""
        return self.evidence_of(generation) / "analysis.json"

    def rank_stacks(self, rank: int, generation: int) -> Path:
        return self.evidence_of(generation) / f"rank-{rank}.stacks"

    def rank_evidence(self, rank: int, generation: int) -> Path:
        return self.evidence_of(generation) / f"rank-{rank}.json"

    def rank_flight(self, rank: int, generation: int) -> Path:
        """The record of torch's flight recorder."""
        return self.evidence_of(generation) / f"rank-{rank}.flight.json"

    def all_stacks(self, generation: int) -> list[Path]:
        return sorted(self.evidence_of(generation).glob("rank-*.stacks"))

    @property
    def reserve(self) -> Path:
        """Reserved disk space, freed on a full disk to record the end of the attempt."""
        return self.path / ".reserve"

    def node_env(self, host: str) -> Path:
        return self.path / f"{host}.env"

    @property
    def error(self) -> Path:
        return self.path / "error.json"

    @property
    def orphaned(self) -> Path:
        """Created by the agent that requeues the job after the supervisor's host is lost."""
        return self.path / "orphaned"

    def claim_requeue(self) -> bool:
        """True for exactly one of all agents that call this, because a file can be created only once."""
        try:
            os.close(os.open(self.orphaned, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            return False
        return True

    @property
    def exit_code(self) -> Path:
        return self.path / "exit_code"

    def read_exit_code(self) -> int | None:
        """None if the attempt has not ended."""
        try:
            return int(self.exit_code.read_text())
        except (OSError, ValueError):
            return None
