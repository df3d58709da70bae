"""Detects the GPUs and the Python of this machine without importing torch."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from echelon.errors import EnvironmentProblem


def count_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """Number of NVIDIA or AMD GPUs that the kernel lists and CUDA_VISIBLE_DEVICES does not hide."""
    present = len(list(root.glob("proc/driver/nvidia/gpus/*"))) or _count_amd(root)
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return present
    return min(present, len([entry for entry in listed.split(",") if entry.strip() not in ("", "-1")]))


def _count_amd(root: Path) -> int:
    return sum(1 for file in root.glob("sys/class/kfd/kfd/topology/nodes/*/gpu_id") if _is_gpu(file))


def _is_gpu(file: Path) -> bool:
    """The id of a CPU is 0. The id of a GPU of another container is not readable."""
    try:
        return file.read_text().strip() not in ("", "0")
    except OSError:
        return False


def default_python(environ: Mapping[str, str]) -> str:
    """The Python for ranks: the current one. If it has no torch, that of the active venv or conda environment."""
    if importlib.machinery.PathFinder.find_spec("torch") is None:
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            candidate = Path(environ.get(variable, "/nonexistent")) / "bin" / "python"
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return sys.executable


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Searches PATH like a shell. A name with a slash is a path."""
    folders = [""] if "/" in name else environ.get("PATH", "").split(os.pathsep)
    candidates = (os.path.join(folder, name) for folder in folders)  # noqa: PTH118
    return next((path for path in candidates if os.access(path, os.X_OK) and not Path(path).is_dir()), None)


def check_python(python: str, origin: str, environ: Mapping[str, str], *, here: bool) -> str | None:
    """Returns a warning if only other nodes may have this Python. Raises EnvironmentProblem if it cannot exist.

    With `here`, ranks run on this machine.
    """
    if find_program(python, environ) is not None:
        return None
    if python.startswith("/") and not here:
        return f"no Python at {python} on this machine; the nodes must have it"
    raise EnvironmentProblem(
        f"no Python at {python}", origin=origin, why="no such program", hint="--python PATH of a Python with torch"
    )


def resolve_gpus_per_node(*, asked: int | None, nodes: int, present: int, cpu: bool) -> int:
    """GPUs per rehearsed node; 0 on a machine without GPUs. Raises EnvironmentProblem if there are too few."""
    if cpu or present == 0:
        return 0
    per_node = asked if asked is not None else present // nodes
    if per_node == 0 or per_node * nodes > present:
        wanted = f"{nodes} nodes x {per_node or 1} GPUs = {nodes * (per_node or 1)} GPUs"
        raise EnvironmentProblem(
            f"{wanted} requested, but this machine has {present}",
            hint=f"--cpu to rehearse on CPU, or -N 1 -g {present} to use all GPUs of this machine",
        )
    return per_node
