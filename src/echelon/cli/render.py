"""`echelon render`: prints the exact job script and starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import click

from echelon.backends import backend
from echelon.backends.batch import array_run_by_variable
from echelon.cli._options import ScriptCommand, build_request, debug_option, job_options
from echelon.cli._output import print_json, print_table, say
from echelon.codec import encode
from echelon.environments.node_script import node_script, wrap_command
from echelon.environments.pyxis import container_flags
from echelon.job import Job
from echelon.launchers import LaunchContext, Scope, launcher_scope, load_launcher
from echelon.launchers.accelerate import read_configuration
from echelon.run_dir import RunDir, new_run_id, runs_folder
from echelon.shell import shell_variable

LAUNCHER_HEADINGS = {
    Scope.NODE: "# ---- then the agent of each node starts its ranks with ----",
    Scope.JOB: "# ---- then the agent of the first node starts all ranks with ----",
}
AGENT_VARIABLES = ("ECHELON_NODE_FOLDERS", "ECHELON_GENERATION", "ECHELON_NODE_DIR")


def launcher_lines(job: Job, home: RunDir, environ: Mapping[str, str]) -> str:
    scope = launcher_scope(job)
    worker = [job.python, "-I", str(home.node_side), "worker", job.launcher]
    worker = wrap_command(job, home.path, worker) if scope is Scope.JOB else worker
    kept = {name: environ[name] for name in ("PATH", "HOME") if name in environ}
    there = {**kept, **dict.fromkeys((*AGENT_VARIABLES, "PYTHONPATH"), "")}
    command = load_launcher(job.launcher).command(job, _launch_context(job, home, environ), worker, there)
    return "\n".join((LAUNCHER_HEADINGS[scope], *(f"# {line}" for line in command.shell_lines()))) + "\n"


def _launch_context(job: Job, home: RunDir, environ: Mapping[str, str]) -> LaunchContext:
    return LaunchContext(
        node_rank=shell_variable("NODE_RANK"),
        is_first=shell_variable("IS_FIRST"),
        nodes=job.resources.nodes,
        procs_per_node=job.resources.procs_per_node,
        main_address=shell_variable("MAIN_ADDRESS"),
        main_port=shell_variable("MAIN_PORT"),
        own_address=shell_variable("OWN_ADDRESS"),
        launcher_port=shell_variable("LAUNCHER_PORT"),
        hosts=(shell_variable("HOSTS"),),
        rehearses_nodes=backend(job.scheduler).rehearses_nodes,
        folder=shell_variable("NODE_DIR"),
        container=container_flags(job, home.path, job.secret_env),
        config=read_configuration(job, environ) if job.launcher == "accelerate" else "",
    )


NODE_SCRIPT_HEADING = "# ---- {file}, in the same folder: run first on every node ----\n"


@click.command(cls=ScriptCommand, help="Print the exact job script; start nothing.")
@job_options
@click.option("--plain", is_flag=True, help="Print a bash script that needs no echelon on the nodes.")
@click.option("--explain", is_flag=True, help="Show every setting and its origin instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the job as JSON instead.")
@debug_option
@click.pass_context
def command(ctx: click.Context, /, plain: bool, explain: bool, as_json: bool, **flags: Any) -> None:
    request = build_request(ctx, flags)
    if as_json:
        print_json({"job": encode(request.job), "origins": request.origins()})
    elif explain:
        print_table(("setting", "value", "from"), request.explain())
    elif plain:
        click.echo(_plain_script(request.job), nl=False)
    else:
        job = request.job
        click.echo(render_scripts(job, _example_run_dir(job), os.environ), nl=False)


def _plain_script(job: Job) -> str:
    from echelon.backends.plain import plain_remarks, render

    script = render(job, os.environ)
    for remark in plain_remarks(job):
        say(remark)
    return script


def render_scripts(job: Job, home: RunDir, environ: Mapping[str, str]) -> str:
    parts = [backend(job.scheduler).render(job, home)]
    if job.is_enclosed:
        parts.append(f"{NODE_SCRIPT_HEADING.format(file=home.node_script.name)}{node_script(job)}")
    if launcher_scope(job) is not Scope.RANK:
        parts.append(launcher_lines(job, home, environ))
    return "\n".join(parts)


def _example_run_dir(job: Job) -> RunDir:
    base = runs_folder(os.environ) / new_run_id(job.name)
    return (
        RunDir(base)
        if job.booking.array is None
        else array_run_by_variable(base, backend(job.scheduler).array_index_variable)
    )
