"""An ordinary accelerate script that stops before the time limit, is requeued, and resumes.

echelon run --launcher accelerate with_accelerate.py
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from task import all_must_stop, batch, commit, network, newest, note

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("accelerate-out"))
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--pause", type=float, default=0.1, help="seconds per step, in place of a larger model")
args = parser.parse_args()

accelerator = Accelerator(cpu=not torch.cuda.is_available())
model = network()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
model, optimizer = accelerator.prepare(model, optimizer)
args.out.mkdir(exist_ok=True, parents=True)


def say(text: str) -> None:
    if accelerator.is_main_process:  # accelerator.print would print once per node
        print(text, flush=True)


begin = 0
saved = newest(args.out)
if saved is not None:
    accelerator.load_state(str(saved))
    begin = int(saved.name.removeprefix("step-"))
say(f"from step {begin} on {accelerator.num_processes} ranks")


def save(step: int) -> None:
    draft = args.out / f"draft-{step:06}"
    accelerator.save_state(str(draft))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        commit(draft, args.out, step)
    accelerator.wait_for_everyone()


for step in range(begin, args.steps):
    if all_must_stop(accelerator.device):
        if step > begin:
            save(step)
        say(f"stopped in time at step {step}")
        sys.exit(75)
    points, heights = (tensor.to(accelerator.device) for tensor in batch(step, accelerator.process_index))
    loss = torch.nn.functional.mse_loss(model(points), heights)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    mean = accelerator.reduce(loss.detach(), reduction="mean")
    if accelerator.is_main_process:
        note(args.out, step, mean)
    time.sleep(args.pause)

say(f"loss {mean.item():.4f} after {args.steps} steps")
accelerator.end_training()
