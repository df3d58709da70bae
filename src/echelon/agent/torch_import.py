"""Imports torch in the starter, before ranks are forked, and checks its version."""

from __future__ import annotations

import gc
import importlib
import random
import re
import sys
from pathlib import Path

from echelon.agent.rank_exit import prepare_rank_exit
from echelon.environments import CONTAINERS
from echelon.job import Job, Script
from echelon.wire.reports import FatalNodeProblem

OLDEST = (2, 3)
"""The smoke tests pass with torch 2.3. The stores of torch 2.2 have no `check`, which `join` and `Checkpoint` call."""
LIBUV_TAKES_SOCKET = (2, 8)
BUILDS_DDP = re.compile(
    r"DistributedDataParallel|\bDDP\b|fully_shard|FSDP|torch\.compile|\.wrap\(|Trainer|[Aa]ccelerat"
)


def import_torch(job: Job) -> FatalNodeProblem | None:
    """Only imports: an OpenMP pool, a process group or a CUDA context would not survive the fork."""
    gc.disable()  # an import makes many objects and no garbage; looking for it takes a tenth of the time
    try:
        for name in ("torch", "torch.distributed"):
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  a broken install can raise any exception: OSError for a missing library
        absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        missing, broken = f"torch is not installed for {job.python}", f"{job.python} cannot import torch"
        why = f"{type(error).__name__}: {error}"
        return FatalNodeProblem(what=missing if absent else broken, why=why, hint=_torch_hint(job))
    outdated = version_problem(sys.modules["torch"].__version__)
    if outdated is not None:
        return outdated
    _preload(_modules_to_preload(job.script) if prepare_rank_exit() else ())
    gc.enable()
    gc.collect()
    gc.freeze()  # forked ranks share these pages until a process writes to them
    return None


def _preload(names: tuple[str, ...]) -> None:
    """Failures are not fatal: the script may not need the module."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  a broken install can raise any exception
            print(f"cannot preload {name}: {type(error).__name__}: {error}", file=sys.stderr)


def _torch_hint(job: Job) -> str:
    if job.environment in CONTAINERS:
        return (
            "use an --image with torch, or --python PATH for another Python in this image; --cold does not need torch"
        )
    return "--python PATH selects another Python; --cold does not need torch"


def _modules_to_preload(script: Script) -> tuple[str, ...]:
    """Guesses from the script's text which modules to import before the fork. A wrong guess only costs time.

    The first DDP model imports torch._dynamo, which takes as long as torch itself. Without the early import every rank
    would do that at every restart.
    """
    try:
        text = Path(script.target).read_text(errors="replace")
    except OSError:
        return ()
    return ("torch._dynamo",) if BUILDS_DDP.search(text) else ()


def version_problem(version: str) -> FatalNodeProblem | None:
    """The error for a torch older than OLDEST, otherwise None."""
    if _parse_version(version) >= OLDEST:
        return None
    oldest = ".".join(map(str, OLDEST))
    return FatalNodeProblem(
        what=f"torch {version} is too old",
        why=f"echelon needs the store functions of torch {oldest}",
        hint=f"install torch {oldest} or later; --cold runs scripts that do not call echelon.join or Checkpoint",
    )


def store_options(version: str) -> dict[str, bool]:
    """Arguments for a TCPStore on an open socket. Before torch 2.8 the libuv backend cannot use one."""
    return {} if _parse_version(version) >= LIBUV_TAKES_SOCKET else {"use_libuv": False}


def _parse_version(version: str) -> tuple[int, ...]:
    """Major and minor version: (2, 7) for 2.7.1+cu126."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def reseed_random() -> None:
    """Forked ranks would otherwise draw the same random numbers; separate interpreters do not."""
    random.seed()
    sys.modules["torch"].default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
