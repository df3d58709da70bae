"""The job of `echelon doctor -N`: an ordinary run of a command, with one process per node. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from echelon.backends import backend
from echelon.codec import encode
from echelon.doctor.model import Plan
from echelon.job import Job, Policies, Script, ScriptKind

NAME = "doctor"
PROGRAM = "import sys; sys.path.pop(0); from echelon.doctor.node import main; main(sys.argv[1:])"
"""Without the working directory on sys.path: a module there must not replace one of the standard library."""
JOIN_SECONDS = 10.0
"""Without an environment to enter, an agent connects a second after its start."""
TIME_LIMIT = timedelta(minutes=10)


def preflight_plan(job: Job) -> Plan:
    """What `--preflight` checks before the ranks start: each node alone, then all pairs."""
    return Plan(
        ranks=job.resources.procs_per_node,
        gpus=job.resources.gpus_per_node,
        interface=job.interface or "",
        rehearsed=backend(job.scheduler).rehearses_nodes,
        tiers=(2, 3),
    )


def doctor_job(job: Job, plan: Plan, *, join_timeout: timedelta | None = None) -> Job:
    """The doctor job for the nodes of `job`. It starts with the nodes that are there after `join_timeout`."""
    resources = replace(
        job.resources,
        min_nodes=1,
        spare_nodes=0,
        procs_per_node=1,
        time_limit=job.resources.time_limit or TIME_LIMIT,
    )
    policies = Policies(
        notice=timedelta(seconds=10),
        hang_timeout=timedelta(0),
        grace=timedelta(seconds=1),
        heartbeat=job.policies.heartbeat,
        join_timeout=join_timeout
        or (job.policies.join_timeout if job.is_enclosed else timedelta(seconds=JOIN_SECONDS)),
    )
    return replace(
        job,
        name=NAME,
        script=Script(kind=ScriptKind.COMMAND, target=job.python, args=("-c", PROGRAM, json.dumps(encode(plan)))),
        resources=resources,
        policies=policies,
        booking=replace(job.booking, array=None),
        launcher="ranks",
        snapshot=False,
    )
