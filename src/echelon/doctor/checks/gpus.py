"""GPUs: present, usable, and free of processes of other jobs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from echelon.doctor.checks import software
from echelon.doctor.model import Check, Facts, Finding, Node, Plan, error, items, number, text, warning
from echelon.system import processes
from echelon.system.machine import count_gpus, find_program
from echelon.text import plural

NAME = "gpus"
SECONDS = 15.0
QUERY = ("--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")
MIB = 1 << 20


def collect(plan: Plan) -> dict[str, Any]:
    if plan.gpus == 0:
        return {}
    own = {os.getppid(), *processes.descendants(os.getppid())}
    program = find_program("nvidia-smi", os.environ)
    facts: dict[str, Any] = {"listed": count_gpus(os.environ), "driver": bool(program)}
    if program is not None:
        done = subprocess.run(
            [program, *QUERY], capture_output=True, text=True, errors="replace", timeout=SECONDS - 1, check=False
        )
        facts["problem"] = "" if done.returncode == 0 else (done.stderr or done.stdout).strip()[:300]
        facts["foreign"] = [
            one | {"user": owner(one["pid"])} for one in parse_apps(done.stdout) if one["pid"] not in own
        ]
    return facts


def parse_apps(text: str) -> list[dict[str, Any]]:
    """Processes on the GPUs, by nvidia-smi: `4711, 1024, python`. Lines of another form are ignored."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and fields[0].isdecimal():
            found.append({"pid": int(fields[0]), "mib": fields[1], "name": Path(fields[2]).name[:60]})
    return found


def owner(pid: int) -> str:
    """The user name of a process; empty if it is not visible."""
    import pwd

    try:
        return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        return ""


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:  # noqa: ARG001
    problem = text(facts, "problem")
    found = [error(NAME, node, "nvidia-smi fails", problem, "exclude the node, and report it")] if problem else []
    return [*found, *_judge_foreign(node, facts)]


def _judge_foreign(node: str, facts: Facts) -> Iterator[Finding]:
    foreign = [one for one in items(facts, "foreign") if isinstance(one, dict)]
    if foreign:
        first = foreign[0]
        who = f" of {first['user']}" if first.get("user") else ""
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        why = f"process {first.get('pid')} ({first.get('name')}{who}, {first.get('mib')} MiB){more}"
        fix = "end it if it is yours, or exclude the node"
        yield error(NAME, node, "another process uses a GPU", why, fix)


def judge_torch(node: Node, plan: Plan) -> Iterator[Finding]:
    """GPUs as torch sees them. Pure."""
    facts = node.facts(software.NAME)
    if plan.gpus == 0 or not text(facts, "torch"):
        return
    gpus = [gpu for gpu in items(facts, "gpus") if isinstance(gpu, dict)]
    if len(gpus) < plan.gpus:
        listed = number(node.facts(NAME), "listed")
        why = text(facts, "problem") or (
            "this torch has no CUDA"
            if not facts.get("cuda") and not facts.get("hip")
            else f"the kernel lists {listed or 0:.0f}"
        )
        fix = "install a build of torch for these GPUs" if "has no CUDA" in why else "exclude the node, or check -g"
        yield error(NAME, node.name, f"torch sees {len(gpus)} of {plural(plan.gpus, 'GPU')}", why, fix)
    for gpu in gpus:
        yield from _judge_gpu(node.name, gpu)


def _judge_gpu(node: str, gpu: Facts) -> Iterator[Finding]:
    index, problem = gpu.get("index"), text(gpu, "problem")
    if problem:
        yield error(NAME, node, f"GPU {index} cannot be used", problem, "exclude the node, and report it")
    elif gpu.get("exact") is False:
        why = "a product of two matrices of ones is not exact"
        yield error(NAME, node, f"GPU {index} computes wrong results", why, "exclude the node, and report it")
    free, total = number(gpu, "free"), number(gpu, "total")
    if free is not None and total and free < total / 2:
        what = f"GPU {index} has {free / MIB:.0f} of {total / MIB:.0f} MiB free"
        yield warning(NAME, node, what, "another process holds its memory", "nvidia-smi lists processes on the node")


def hung(node: str) -> Finding:
    why = f"no answer within {SECONDS:g} s: the driver hangs"
    return error(NAME, node, "nvidia-smi does not return", why, "exclude the node, and report it")


CHECK = Check(name=NAME, seconds=SECONDS, collect=collect, judge=judge, hung=hung, on_login=False)
