"""What this machine has, found out without importing torch."""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from echelon.errors import EnvironmentProblem


def count_gpus(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """NVIDIA's and AMD's, as the kernel lists them, less what CUDA_VISIBLE_DEVICES hides."""
    present = len(list(root.glob("proc/driver/nvidia/gpus/*"))) or _count_amd(root)
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return present
    return min(present, len([entry for entry in listed.split(",") if entry.strip() not in ("", "-1")]))


def _count_amd(root: Path) -> int:
    return sum(1 for file in root.glob("sys/class/kfd/kfd/topology/nodes/*/gpu_id") if _is_gpu(file))


def _is_gpu(file: Path) -> bool:
    """A CPU's id is 0; one that may not be read belongs to somebody else's container."""
    try:
        return file.read_text().strip() not in ("", "0")
    except OSError:
        return False


def default_python(environ: Mapping[str, str]) -> str:
    """The Python that ranks run on: ours, unless it has no torch and an environment is active."""
    if importlib.machinery.PathFinder.find_spec("torch") is None:
        for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
            candidate = Path(environ.get(variable, "/nonexistent")) / "bin" / "python"
            if os.access(candidate, os.X_OK):
                return str(candidate)
    return sys.executable


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """As a shell would find it; a name with a slash is a path."""
    folders = [""] if "/" in name else environ.get("PATH", "").split(os.pathsep)
    candidates = (os.path.join(folder, name) for folder in folders)  # noqa: PTH118
    return next((path for path in candidates if os.access(path, os.X_OK) and not Path(path).is_dir()), None)


def check_python(python: str, origin: str, environ: Mapping[str, str], *, here: bool) -> str | None:
    """Refuses one that cannot be there; a warning about one that only other nodes may have."""
    if find_program(python, environ) is not None:
        return None
    if python.startswith("/") and not here:
        return f"no Python at {python} on this machine; the nodes must have one there"
    raise EnvironmentProblem(
        f"no Python to run at {python}", origin=origin, hint="--python PATH names the one that has torch"
    )


def fit_gpus(*, asked: int | None, nodes: int, present: int, cpu: bool) -> int:
    """How many GPUs each rehearsed node gets: none where there are none, an error where there are too few."""
    if cpu or present == 0:
        return 0
    per_node = asked if asked is not None else present // nodes
    if per_node == 0 or per_node * nodes > present:
        wanted = f"{nodes} nodes x {per_node or 1} GPUs = {nodes * (per_node or 1)} GPUs"
        raise EnvironmentProblem(
            f"{wanted} asked for, but this machine has {present}",
            hint=f"echelon run --cpu ... rehearses on CPU; -N 1 -g {present} fits this machine",
        )
    return per_node
