"""`echelon doctor`: checks this machine, or the nodes of a job."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from echelon.backends import backend
from echelon.cli._doctor_job import JobResult, run_doctor_job
from echelon.cli._options import Request, ScriptCommand, build_request, debug_option, job_options
from echelon.cli._output import print_json, print_text, say
from echelon.config.environment import is_shared
from echelon.doctor.checks import CHECKS, software
from echelon.doctor.history import compare_with_last, history_file, keep, read_last, summarize
from echelon.doctor.isolate import run_checks, run_isolated
from echelon.doctor.job import doctor_job
from echelon.doctor.judge import judge_node, sort_findings
from echelon.doctor.login import (
    LoginPlan,
    collect_holders,
    collect_quota,
    collect_scheduler,
    collect_visible,
    judge_login,
)
from echelon.doctor.model import Finding, Node, Plan, Result, Severity
from echelon.doctor.report import Report, format_report, format_summary, report_as_json
from echelon.errors import EchelonError
from echelon.job import Script, ScriptKind
from echelon.run_dir import RunDir, runs_folder

COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}
JOB_SETTINGS = ("nodes", "hosts", "hostfile", "nodelist")
"""Flags that ask for a job on nodes. Without them only this machine is checked."""
LOGIN_SECONDS = 45.0
PARENT_SECONDS = 5.0
OVER_SECONDS = 30.0
OVER_POLL_SECONDS = 0.5
NO_SCRIPT = Script(kind=ScriptKind.MODULE, target="echelon.doctor.node")


class DoctorCommand(ScriptCommand):
    usage = "[OPTIONS] [SCRIPT.py | -m MODULE | -- COMMAND]"
    shows_examples = False


@click.command(
    cls=DoctorCommand,
    help="Check this machine and its scheduler; with -N or --hosts, the nodes of a short job.\n\n"
    "\b\n"
    "  echelon doctor                this machine\n"
    "  echelon doctor -N 4 -p gpu    four nodes: each alone, in pairs, all together\n\n"
    "Takes the options of echelon run. The exit code is 1 if there are errors, 0 if there are only warnings.",
)
@click.option("--folder", "folders", multiple=True, metavar="DIR", help="Folder that ranks write to; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@job_options
@debug_option
@click.pass_context
def command(ctx: click.Context, /, folders: tuple[str, ...], as_json: bool, **flags: Any) -> int:
    began = time.monotonic()
    script = ctx.meta["echelon.script"]
    ctx.meta["echelon.script"] = script or NO_SCRIPT
    wants_job = any(flags.get(key) for key in JOB_SETTINGS)
    request = build_request(ctx, flags)
    places = tuple(Path(folder).absolute() for folder in folders)
    report = check_login(request, script, places, is_login=wants_job)
    is_refused = any(one.check == "scheduler" and one.severity is Severity.ERROR for one in report.findings)
    result = check_nodes(request, script, places) if wants_job and not is_refused else None
    if result is not None:
        report = with_nodes(report, result)
    report = with_history(replace(report, seconds=time.monotonic() - began))
    if as_json:
        print_json(report_as_json(report))
    else:
        print_report(report)
    if result is not None and result.completed:
        remove_when_over(result.run_dir)
    return 1 if report.count(Severity.ERROR) else 0


# Tier 1: this machine


def check_login(request: Request, script: Script | None, folders: tuple[Path, ...], *, is_login: bool) -> Report:
    job, ours = request.job, backend(request.job.scheduler)
    runs, host = runs_folder(os.environ), socket.gethostname()
    own_folders = [_existing_parent(runs), *map(str, folders)]
    plan = Plan(
        ranks=job.resources.procs_per_node,
        gpus=job.resources.gpus_per_node,
        folders=tuple(dict.fromkeys(own_folders)),
        is_login=is_login or not ours.runs_script_here,
        python=job.python,
    )
    login = LoginPlan(
        job=job,
        runs=runs,
        checkpoints=(*folders, Path("checkpoints").absolute()),
        shared_paths={path: is_shared(path) for path in _paths_for_nodes(request, script)}
        if not is_login and not ours.runs_script_here and ours.shares_file_system
        else {},
    )
    results = collect_login(login, os.environ)
    facts = {result.check: result.facts for result in results}
    chosen = [check for check in CHECKS if check.on_login or not plan.is_login]
    if plan.is_login or job.is_enclosed:
        chosen.remove(software.CHECK)  # this machine does not run the ranks, or not with this Python
    node = Node(name=host, results={result.check: result for result in run_checks(chosen, plan)})
    findings = [*judge_login(facts, host), *(_unanswered(one, host) for one in results if one.problem)]
    findings += [replace(one, excludes=()) for one in judge_node(node, plan)]
    return Report(
        site=site_name(request),
        findings=sort_findings(findings),
        nodes=[] if plan.is_login else [node],
        site_wide=facts,
    )


def collect_login(plan: LoginPlan, environ: Mapping[str, str]) -> list[Result]:
    """Each question in a process of its own, with a timeout."""
    ours = backend(plan.job.scheduler)
    return [
        run_isolated("scheduler", LOGIN_SECONDS, lambda: collect_scheduler(plan, ours, environ)),
        run_isolated("holders", LOGIN_SECONDS, lambda: collect_holders(plan.checkpoints)),
        run_isolated("visible", LOGIN_SECONDS, lambda: collect_visible(plan.shared_paths)),
        run_isolated("quota", LOGIN_SECONDS, lambda: collect_quota(environ)),
    ]


def _unanswered(result: Result, host: str) -> Finding:
    what = f"the check of {result.check} failed"
    return Finding(severity=Severity.WARNING, check=result.check, node=host, what=what, why=result.problem)


def _existing_parent(folder: Path) -> str:
    """The folder, or the nearest parent that exists: the folder of runs is made with the first run.

    Also the folder itself if it hangs: the check of storage reports that.
    """
    parents = (folder, *folder.parents)
    found = run_isolated("runs", PARENT_SECONDS, lambda: {"path": str(next(one for one in parents if one.is_dir()))})
    return str(found.facts.get("path", folder))


def _paths_for_nodes(request: Request, script: Script | None) -> list[str]:
    """Script, interpreter, environment and working directory."""
    job = request.job
    paths = [job.cwd, *(() if job.is_enclosed else (job.python,)), *filter(None, (job.enclosure.venv,))]
    if script is not None and script.kind is ScriptKind.FILE:
        paths.append(str(Path(job.cwd) / script.target))
    return [path for path in paths if path.startswith("/")]


def site_name(request: Request) -> str:
    job = request.job
    parts = (job.scheduler, job.booking.partition, socket.gethostname())
    return " ".join(filter(None, parts))


# Tiers 2 to 4: the nodes


def check_nodes(request: Request, script: Script | None, folders: tuple[Path, ...]) -> JobResult:
    """Runs the doctor job to its end."""
    job, ours = request.job, backend(request.job.scheduler)
    runs = runs_folder(os.environ)
    plan = Plan(
        ranks=job.resources.procs_per_node,
        gpus=job.resources.gpus_per_node,
        folders=tuple(map(str, (*((runs,) if ours.shares_file_system else ()), *folders))),
        paths=tuple(_paths_for_nodes(request, script)) if ours.shares_file_system else (),
        interface=job.interface or "",
        rehearsed=ours.rehearses_nodes,
    )
    checked = doctor_job(job, plan, join_timeout=request.settings.asked("join_timeout"))
    return run_doctor_job(checked, plan, request.origins(), request.secrets, runs)


def with_nodes(login: Report, result: JobResult) -> Report:
    return replace(
        login,
        findings=sort_findings([*login.findings, *result.findings]),
        nodes=result.nodes,
        tiers=(1, 2, 3, 4),
        run="" if result.completed else result.run_dir.run_id,
    )


def remove_when_over(run_dir: RunDir) -> None:
    """Removes the directory of a doctor job, which has nothing that the report lacks and would hide the latest run.

    Waits for the end of the job: PBS never ends a job whose output cannot be written. Keeps the directory if the job
    does not end.
    """
    deadline = time.monotonic() + OVER_SECONDS
    while time.monotonic() < deadline:
        try:
            [status] = backend(run_dir.read_job().scheduler).query([run_dir])
        except EchelonError:
            return
        if status is None or status.state.ended:
            shutil.rmtree(run_dir.path, ignore_errors=True)
            return
        time.sleep(OVER_POLL_SECONDS)


# Results


def with_history(report: Report) -> Report:
    """Adds notes about changes since the last good result. Keeps this result if it is good."""
    if not report.nodes:
        return report
    path = history_file(report.site, os.environ)
    summary, last = summarize(report.nodes, time.time()), read_last(path)
    notes = list(compare_with_last(summary, last)) if last is not None else []
    if report.count(Severity.ERROR) == 0:
        try:
            keep(path, summary)
        except OSError as error:
            say(f"warning: cannot keep the result in {path}: {error.strerror}")
    return replace(report, findings=sort_findings([*report.findings, *notes]))


def print_report(report: Report) -> None:
    text = format_report(report, _style)
    if text:
        print_text(text) if not sys.stdout.isatty() else click.echo(text)
    for line in format_summary(report):
        say(line)
    if report.run:
        say(f"the doctor job did not complete: echelon logs {report.run}, echelon why {report.run}")


def _style(text: str, use: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=COLOURS.get(use), bold=True)
