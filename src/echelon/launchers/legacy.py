"""`--launcher legacy`: python -m torch.distributed.launch, for those whose scripts of old go by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.command import Command
from echelon.job import Job
from echelon.launchers import Where
from echelon.launchers.torchrun import OURS, rest, static

__all__ = ("OURS", "command")


def command(job: Job, where: Where, worker: Sequence[str], environ: Mapping[str, str]) -> Command:  # noqa: ARG001
    """The local rank comes as LOCAL_RANK, not as an argument that scripts must know of."""
    options = ("--use-env", *static(where), *rest(job, where, worker))
    return Command(argv=(job.python, "-W", "ignore::FutureWarning", "-m", "torch.distributed.launch", *options))
