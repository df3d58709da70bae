"""Sharded tensors are loaded on other numbers of ranks, and exported to one file."""

import json
import re

import pytest

pytestmark = pytest.mark.torch
SHARDED = """
import sys
import torch, echelon
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
world = echelon.join()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(5, 17), torch.nn.Tanh(), torch.nn.Linear(17, 3))
mesh = init_device_mesh("cpu", (world.size,))
for part in (model[0], model[2], model):
    fully_shard(part, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
def total():
    moments = [optimizer.state[p]["exp_avg_sq"] for p in model.parameters() if p in optimizer.state]
    return [tensor.full_tensor().sum(dtype=torch.float64).item() for tensor in (*model.parameters(), *moments)]
with echelon.Checkpoint("sharded", model=model, optimizer=optimizer, every=None) as checkpoint:
    world.print("begins", checkpoint.step, total())
    while checkpoint.step < int(sys.argv[1]):
        model(torch.ones(4, 5) * checkpoint.step).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoint.after_step()
    ended = total()
    world.print("ends", checkpoint.step, ended)
"""


def test_sharded_tensors_load_on_three_ranks_and_export(echelon):
    script = echelon.script("sharded.py", SHARDED)
    first = echelon("run", "-g", "4", script, "3")
    assert first.returncode == 0, first.stderr + first.stdout
    second = echelon("run", "-g", "3", script, "5")
    assert second.returncode == 0, second.stderr + second.stdout
    assert re.search(r"ends (3 .*)", first.stdout)[1] == re.search(r"begins (3 .*)", second.stdout)[1]
    assert echelon("export", "sharded", "out.pt").returncode == 0
    assert echelon("export", "sharded", "out.safetensors").returncode == 0
    import torch

    state = torch.load(echelon.folder / "out.pt", weights_only=True)
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "0.weight": (17, 5),
        "0.bias": (17,),
        "2.weight": (3, 17),
        "2.bias": (3,),
    }
    sums = [tensor.sum(dtype=torch.float64).item() for tensor in state.values()]
    assert json.loads(re.search(r"ends 5 (.*)", second.stdout)[1])[:4] == sums
    assert read_safetensors(echelon.folder / "out.safetensors") == {
        name: tensor.flatten().tolist() for name, tensor in state.items()
    }


def read_safetensors(path):
    """By the format's own description, and nothing of ours."""
    import struct

    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    found = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32"
        found[name] = list(struct.unpack(f"<{(end - begin) // 4}f", body[begin:end]))
    return found
