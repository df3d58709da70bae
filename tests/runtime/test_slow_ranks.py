"""A rank that slows the others down is named with its reason, and the ranks that wait for it are not."""

import pytest

SLOW = """
import os, time
import torch
from torch.utils.data import DataLoader, Dataset
import echelon

world = echelon.join()
torch.set_num_threads(1)
slow_input, slow_code = (os.environ.get(name) == str(world.rank) for name in ("SLOW_INPUT", "SLOW_CODE"))

class Data(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, index):
        if slow_input:
            time.sleep(0.08)
        return torch.zeros(8)

def is_reported():
    events = open(os.environ["ECHELON_RUN_DIR"] + "/events.jsonl").read()
    return '"slow"' in events

model = world.wrap(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
sampler = echelon.ElasticSampler(Data(), shuffle=False)
began, stop = time.monotonic(), torch.zeros(1)
with echelon.Checkpoint(model=model, sampler=sampler, every=None) as checkpoint:
    for x in checkpoint.steps(DataLoader(Data(), sampler=sampler, batch_size=2), until=10**5):
        time.sleep(0.2 if slow_code else 0.04)
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if checkpoint.step % 20 == 0:
            stop.fill_(is_reported() or time.monotonic() - began > 150)
            torch.distributed.all_reduce(stop)
            if stop.item():
                break
"""


@pytest.mark.parametrize(
    ("variable", "rank", "host", "reason"),
    [("SLOW_INPUT", 1, "node0", "waiting for input"), ("SLOW_CODE", 2, "node1", "in its own code")],
)
def test_slow_rank_is_named_and_the_waiting_ones_are_not(echelon, variable, rank, host, reason):
    script = echelon.script("train.py", SLOW)
    result = echelon("run", "-N", "2", "--procs-per-node", "2", script, env={variable: str(rank)})
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    (event,) = run.events("slow")
    assert (event["change"], event["ranks"], event["reason"]) == ("chronic", [rank], reason)
    assert event["text"].startswith(f"rank {rank} on {host} is ")
    assert f"warning: {event['text']}" in result.stderr
    assert run.status()["slow"] == [event["text"]]
    assert run.events("fault") == []
