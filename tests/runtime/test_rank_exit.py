"""Warm ranks exit although torch._dynamo was imported before the fork."""

import subprocess
import sys
from pathlib import Path

import pytest

PREPARED = """
import gc
import torch, torch.distributed as dist
from echelon.agent.rank_exit import prepare_rank_exit
"""

KEPT = """
from echelon.agent import rank_exit
assert prepare_rank_exit()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.destroy_process_group()
print([type(group).__name__ for group in rank_exit._groups.all])
"""

MANY = """
from echelon.agent import rank_exit
assert prepare_rank_exit()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
default = dist.group.WORLD._get_backend(torch.device("cpu"))
for _ in range(200):
    dist.destroy_process_group(dist.new_group())
dist.destroy_process_group()
address = id(default)
del default
gc.collect()
print("default group kept:", any(id(group) == address for group in rank_exit._groups.all))
print("few threads:", len(rank_exit._gloo_threads()) < 400)
"""

FROZEN = """
import atexit
atexit.register(lambda: print("frozen at exit:", gc.get_freeze_count() > 0))
assert prepare_rank_exit()
gc.freeze()
"""

NATIVE_MODULE = """
import sys, types
module = sys.modules["native"] = types.ModuleType("native")
module.function = type("nb_func", (), {"__module__": "nanobind"})()
"""

EXITS = Path(__file__).parents[2] / "bench" / "scripts" / "exits.py"
WAYS = ("local", "module-level", "two-models", "fsdp2", "no-destroy", "sys-exit", "exception")


def output_of(text: str) -> str:
    """Raises TimeoutExpired for a program that does not exit."""
    argv = [sys.executable, "-c", PREPARED + text]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=True)
    return done.stdout + done.stderr


def test_a_destroyed_gloo_group_stays_alive():
    assert output_of(KEPT) == "['ProcessGroupGloo']\n"


def test_the_default_group_stays_alive_in_a_loop_of_groups():
    assert output_of(MANY) == "default group kept: True\nfew threads: True\n"


def test_objects_stay_frozen_at_exit_because_freeing_them_takes_long():
    assert output_of(FROZEN) == "frozen at exit: True\n"


def test_objects_of_nanobind_are_freed_at_exit_because_it_reports_leaks():
    assert output_of(NATIVE_MODULE + FROZEN) == "frozen at exit: False\n"


@pytest.mark.torch
@pytest.mark.parametrize("way", WAYS)
def test_warm_ranks_exit(echelon, way):
    done = echelon("run", "--procs-per-node", "2", "--hang-timeout", "60s", EXITS, way, "hold-gil")
    assert done.returncode == (1 if way == "exception" else 0), done.stderr
    assert ("an exception ends this rank" in done.stderr) == (way == "exception")
