"""`echelon render`: the exact job script, and nothing else happens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from echelon.arrays import any_element
from echelon.cli.options import ScriptCommand, debug_option, job_options, request_of
from echelon.cli.output import print_json, print_table, say
from echelon.codec import encode
from echelon.environments import node_script
from echelon.job import Job
from echelon.launchers import Scope, scope_of
from echelon.registry import member
from echelon.run_dir import RunDir, new_run_id, runs_folder
from echelon.schedulers import Scheduler

HEADING = "# ---- {file}, beside it: what every node does first ----\n"


@click.command(cls=ScriptCommand, help="Print the exact job script; start nothing.")
@job_options
@click.option("--plain", is_flag=True, help="A script of bash that needs no echelon on the nodes, to learn from.")
@click.option("--explain", is_flag=True, help="Show every setting and where it came from instead.")
@click.option("--json", "as_json", is_flag=True, help="The job as JSON instead.")
@debug_option
@click.pass_context
def command(ctx: click.Context, /, plain: bool, explain: bool, as_json: bool, **flags: Any) -> None:
    request = request_of(ctx, flags)
    if as_json:
        print_json({"job": encode(request.job), "origins": request.origins()})
    elif explain:
        print_table(("setting", "value", "from"), request.explained())
    elif plain:
        click.echo(_plain(request.job), nl=False)
    else:
        job = request.job
        click.echo(rendered(job, _home(job, _scheduler(job)), os.environ), nl=False)


def _plain(job: Job) -> str:
    from echelon.plain import remarks, render

    script = render(job, os.environ)
    for remark in remarks(job):
        say(remark)
    return script


def rendered(job: Job, home: RunDir, environ: Mapping[str, str]) -> str:
    parts = [_scheduler(job).render(job, home)]
    if job.is_enclosed:
        parts.append(f"{HEADING.format(file=home.node_script.name)}{node_script(job)}")
    if scope_of(job) is not Scope.RANK:
        from echelon.cli.launching import launching

        parts.append(launching(job, home, environ))
    return "\n".join(parts)


def _scheduler(job: Job) -> Scheduler:
    scheduler: Scheduler = member("scheduler", job.scheduler)
    return scheduler


def _home(job: Job, scheduler: Scheduler) -> RunDir:
    base = runs_folder(os.environ) / new_run_id(job.name)
    return RunDir(base) if job.booking.array is None else any_element(base, scheduler.ARRAY_INDEX)
