"""Who puts the job back when its supervisor is lost."""

from __future__ import annotations

from echelon.run_dir import AttemptDir


class Claim:
    """Of all the agents that lost their supervisor, one puts the job back, and tries until it is through."""

    def __init__(self, attempt: AttemptDir) -> None:
        self.attempt = attempt
        self._ours = False

    def is_ours(self) -> bool:
        self._ours = self._ours or self.attempt.claim_orphans()
        return self._ours
