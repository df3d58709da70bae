"""Versions of Python, torch, CUDA and NCCL, read by the Python of the ranks."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from echelon.doctor.model import Check, Facts, Finding, Node, Plan, error, text
from echelon.untrusted import parse_json

NAME = "software"
COMPARED = ("python", "torch", "cuda", "hip", "nccl")
SECONDS = 60.0
"""The first import of torch from a cold file server takes this long."""


def torch_command(python: str) -> list[str]:
    """The command of `torch_child`. Its source is an argument: that Python may not have echelon."""
    source = pkgutil.get_data("echelon.doctor", "torch_child.py") or b""
    return [python, "-c", source.decode()]


def collect(plan: Plan) -> Mapping[str, Any]:
    return describe_python(plan.python or sys.executable, os.environ)


def describe_python(python: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Raises OSError, ValueError and subprocess.TimeoutExpired."""
    done = subprocess.run(
        torch_command(python), env=dict(environ), input=b"", capture_output=True, timeout=SECONDS, check=False
    )
    return parse_description(done.stdout, done.stderr, done.returncode)


def parse_description(out: bytes, err: bytes = b"", code: int = 0) -> Mapping[str, Any]:
    """The first line of the program. A program that died says why on stderr."""
    lines = [line for line in out.splitlines() if line.startswith(b"{")]
    if lines:
        facts = parse_json(lines[0])
        return facts if isinstance(facts, dict) else {}
    said = err.decode(errors="replace").strip().splitlines()
    return {"torch_problem": said[-1][:500] if said else f"python ended with exit code {code}"}


def judge(node: str, facts: Facts, plan: Plan) -> Sequence[Finding]:  # noqa: ARG001
    problem = text(facts, "torch_problem")
    if not problem:
        return []
    python = text(facts, "executable") or "python"
    is_missing = "No module named 'torch'" in problem
    what = f"no torch in {python}" if is_missing else "torch cannot be imported"
    fix = "--python PATH, --venv DIR or --conda NAME of an environment with torch"
    return [error(NAME, node, what, problem, fix)]


def compare(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Versions that differ from those of most nodes. Pure."""
    for key in COMPARED:
        found = {node.name: node.facts(NAME)[key] for node in nodes if node.facts(NAME).get(key) is not None}
        if len(set(map(str, found.values()))) < 2:
            continue
        usual, count = Counter(map(str, found.values())).most_common(1)[0]
        for name, version in found.items():
            if str(version) != usual:
                others = "the other node has" if len(found) == 2 else f"{count} of {len(found)} nodes have"
                fix = "use one environment on all nodes: --venv, --conda or --image on a shared file system"
                yield error(NAME, name, f"{key} {version}", f"{others} {key} {usual}", fix)


def hung(node: str) -> Finding:
    why = f"no answer within {SECONDS:g} s; the file system of the environment may hang"
    return error(NAME, node, "import torch does not return", why, "check the mounts; put the environment elsewhere")


CHECK = Check(name=NAME, seconds=SECONDS + 1, collect=collect, judge=judge, hung=hung)
