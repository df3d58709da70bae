"""Retries for an agent that fails while another job creates the pyxis container of the same name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from echelon.environments.wrap import NO_SHELL, PYXIS_PREFIX
from echelon.job import Job
from echelon.wire.messages import FatalNodeProblem

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 32.0
NAME_IS_TAKEN = f"{PYXIS_PREFIX}    [ERROR] File already exists"
NOT_CREATED = re.compile(r"pyxis: .*(failed to (create|import)|does not exist)")
NOT_STARTED = re.compile(rf"{re.escape(NO_SHELL)}|pyxis: (container start failed|couldn't start container)")
NO_PYTHON = re.compile(r"cannot run \S+ in ")


def container_may_be_incomplete(job: Job, trouble: FatalNodeProblem, output: str) -> bool:
    """Whether an agent may have failed because another job was still creating the container. Pure.

    pyxis and enroot do not report this: programs are missing in a container that is half extracted.
    """
    if job.environment != "pyxis" or not job.enclosure.container_name:
        return False
    if NAME_IS_TAKEN in output or NO_PYTHON.search(trouble.why):
        return True
    return bool(NOT_STARTED.search(output)) and not NOT_CREATED.search(output)


def retry_warning(job: Job, host: str, trouble: FatalNodeProblem) -> str:
    first, *_ = trouble.why.splitlines()
    limit = job.policies.join_timeout.total_seconds()
    what = f"{host}: the container {job.enclosure.container_name} cannot be used yet ({first})"
    return f"{what}; another job may be creating it; retrying for up to --join-timeout ({limit:g} s)"


@dataclass
class Retries:
    """Restarts of the agent of one node."""

    job: Job
    give_up_at: float
    count: int = 0

    def next_at(self, now: float, trouble: FatalNodeProblem, output: str) -> float | None:
        """When to start the agent again; None if that is too late or does not help.

        After the first retry any failure leads to another one: the container may still be incomplete.
        """
        at = now + min(FIRST_PAUSE_SECONDS * 2.0**self.count, LONGEST_PAUSE_SECONDS)
        if at >= self.give_up_at or (self.count == 0 and not container_may_be_incomplete(self.job, trouble, output)):
            return None
        self.count += 1
        return at
