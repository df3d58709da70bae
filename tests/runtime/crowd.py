"""Ranks that a test starts itself, each with its own variables."""

import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from running import DEADLINE_SECONDS

STORY = """
import json, sys
from datetime import timedelta
import torch
import torch.distributed as dist
import echelon

world = echelon.join(rendezvous=sys.argv[1] if len(sys.argv) > 1 else None, timeout=timedelta(seconds=60))
assert echelon.join() is world
total = torch.tensor([float(world.rank + 1)])
dist.all_reduce(total)
print(json.dumps({
    "rank": world.rank, "size": world.size, "local": [world.local_rank, world.local_size], "node": world.node_rank,
    "device": str(world.device), "backend": dist.get_backend(), "sum": total.item(), "shard": world.shard(range(5)),
    "mean": world.reduce_mean({"b": world.rank, "a": torch.tensor([2.0], requires_grad=True)}),
}), flush=True)
world.print("said", "once", sep="-")
world.barrier()
"""


class Crowd:
    """Several processes of one script, each with its own variables."""

    def __init__(self, tool):
        self.tool = tool
        self.stack = ExitStack()

    def start(self, script, environs, *args):
        return [
            self.stack.enter_context(
                subprocess.Popen(
                    [sys.executable, script, *args],
                    env={**self.tool.env, **environ},
                    cwd=self.tool.folder,
                    text=True,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
            for environ in environs
        ]

    def __call__(self, script, environs, *args):
        """(exit code, stdout, stderr) of each."""
        crowd = self.start(script, environs, *args)
        try:
            said = [process.communicate(timeout=DEADLINE_SECONDS) for process in crowd]
        finally:
            for process in crowd:
                process.kill()
        return [(process.returncode, *texts) for process, texts in zip(crowd, said, strict=True)]


@pytest.fixture
def crowd(echelon):
    crowd = Crowd(echelon)
    with crowd.stack:
        yield crowd


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def hand_set(size, **more):
    port = str(free_port())
    return [
        {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}
        for rank in range(size)
    ]
