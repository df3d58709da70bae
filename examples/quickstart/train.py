"""Trains a small network to distinguish two spirals: an ordinary torchrun script that saves checkpoints and resumes.

    echelon run -N 2 -g 2 --restarts 1 examples/quickstart/train.py --kill-rank 3 --kill-at 120

It does not import echelon. The kill is real: rank 3 sends itself SIGKILL, once.
"""

import argparse
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def spirals(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, 2, (count,), generator=generator)
    angle = torch.rand(count, generator=generator) * 9 + 1
    turn = angle + labels * torch.pi
    points = torch.stack([turn.cos(), turn.sin()], dim=1) * angle[:, None] / 10
    return points + torch.randn(count, 2, generator=generator) * 0.01, labels


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2)]
    return torch.nn.Sequential(*layers)


def save(path: Path, state: dict) -> None:
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--checkpoint", type=Path, default=Path("quickstart.pt"))
    parser.add_argument("--kill-rank", type=int, default=-1, help="this rank kills itself once, with SIGKILL")
    parser.add_argument("--kill-at", type=int, default=120)
    args = parser.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, first_start = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    begin = 0
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    if rank == 0:
        print(f"training from step {begin} on {dist.get_world_size()} ranks", flush=True)

    for step in range(begin, args.steps):
        points, labels = spirals(256, torch.Generator().manual_seed(step * 1000 + rank))
        loss = torch.nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if first_start and rank == args.kill_rank and step == args.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 0 and (step + 1) % args.save_every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            save(args.checkpoint, state)
            print(f"step {step + 1:4d}  loss {loss.item():.3f}  saved", flush=True)

    points, labels = spirals(2000, torch.Generator().manual_seed(-1))
    right = (model(points.to(device)).argmax(1).cpu() == labels).float().mean()
    if rank == 0:
        print(f"{right:.1%} of 2000 new points are classified correctly", flush=True)
    del model  # before its group: torch 2.13 can hang if a DDP model is destroyed after it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
