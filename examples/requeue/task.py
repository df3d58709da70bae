"""The model, the data, the checkpoints and the stop of both scripts. Plain torch."""

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
    """Random points of a surface. They depend only on step and rank, so a run that was stopped and a run that was not
    see the same points."""
    points = torch.rand(BATCH, 2, generator=torch.Generator().manual_seed(step * 1000 + rank)) * 4 - 2
    return points, (points[:, :1] * 2).sin() * (points[:, 1:] * 3).cos()


def all_must_stop(device: torch.device) -> bool:
    """Whether any rank has got the notice: ranks do not get it at the same moment. The tensor is on the rank's own
    device, because NCCL does not support tensors on CPU."""
    stop = torch.tensor(float(echelon.notice_given()), device=device)
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    return bool(stop)


def newest(folder: Path) -> Path | None:
    return max(folder.glob("step-*"), default=None)


def commit(draft: Path, folder: Path, step: int) -> None:
    """Renames the draft to its final name, so that a checkpoint with a final name is always complete."""
    for file in (path for path in draft.rglob("*") if path.is_file()):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    draft.rename(folder / f"step-{step:06}")


def note(folder: Path, step: int, loss: torch.Tensor) -> None:
    with (folder / "loss.csv").open("a") as file:
        file.write(f"{step},{loss.item():.6f}\n")
