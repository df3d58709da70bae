"""Slurm's own commands on the node side: what they are given, and what of their answers counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon import scontrol
from echelon.batch_facts import SLURM
from echelon.node.hosts import Standing
from echelon.node.hosts.asking import Asked, run

ANSWER_SECONDS = 3.0


def parse_standing(line: str, restart_count: int) -> Standing:
    """Taken back, if Slurm counts more restarts than we know of."""
    fields = scontrol.fields_of(line)
    restarts = fields.get("Restarts", "")
    return Standing(
        end_at=scontrol.moment(fields.get("EndTime", "")),
        taken_back=restarts.isdecimal() and int(restarts) > restart_count,
    )


def plain(environ: Mapping[str, str]) -> dict[str, str]:
    """Messages and dates that can be parsed, whatever the user's language."""
    return {**environ, "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}


def ask(argv: Sequence[str], environ: Mapping[str, str]) -> str:
    """Raises Unreachable, and CalledProcessError where Slurm answered no."""
    return run(argv, plain(environ), SLURM)


def show_job(job_id: str) -> tuple[str, ...]:
    return ("scontrol", "show", "job", job_id, "-o")


def ask_for_standing(job_id: str, restart_count: int, environ: Mapping[str, str]) -> Asked:
    return Asked(show_job(job_id), plain(environ), ANSWER_SECONDS, lambda text: parse_standing(text, restart_count))
