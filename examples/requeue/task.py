"""What both scripts train, how they keep it, and how all ranks agree to stop. Plain torch."""

import os
from pathlib import Path

import torch
import torch.distributed as dist

import echelon

BATCH = 64


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A surface with hills, sampled anew in each step: which points depends on step and rank alone, so that a run
    which was stopped and a run which was not see the same ones."""
    points = torch.rand(BATCH, 2, generator=torch.Generator().manual_seed(step * 1000 + rank)) * 4 - 2
    return points, (points[:, :1] * 2).sin() * (points[:, 1:] * 3).cos()


def all_must_stop(device: torch.device) -> bool:
    """A notice reaches the nodes within moments of each other, not at once: one rank that has it stops all. Asked on
    the rank's own device, for nccl knows no tensors on CPU."""
    told = torch.tensor(float(echelon.notice_given()), device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told)


def newest(folder: Path) -> Path | None:
    return max(folder.glob("step-*"), default=None)


def commit(draft: Path, folder: Path, step: int) -> None:
    """What is under its final name is whole, whatever happens: a rename is all or nothing."""
    for file in (path for path in draft.rglob("*") if path.is_file()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    draft.rename(folder / f"step-{step:06}")


def note(folder: Path, step: int, loss: torch.Tensor) -> None:
    with (folder / "loss.csv").open("a") as file:
        file.write(f"{step},{loss.item():.6f}\n")
