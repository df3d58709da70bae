"""World: reductions of equal keys, and closing before another one is opened."""

import re

import pytest

pytestmark = pytest.mark.torch
KEYS = """
import echelon
from echelon.errors import ConfigError

world = echelon.join()
assert world.reduce_mean({"loss": world.rank}) == {"loss": 0.5}
try:
    world.reduce_mean({"loss": 1.0, f"of-{world.rank}": 2.0})
except ConfigError as error:
    print(error.what)
except RuntimeError:
    print("lost its peer")
"""


def test_different_keys_are_refused_before_the_reduction(echelon):
    result = echelon("run", "-g", "2", echelon.script("train.py", KEYS))
    one, two = sorted(line.partition("] ")[2] for line in result.stdout.splitlines())
    assert one == "lost its peer"
    assert re.fullmatch(r"rank (.) passed the keys \['loss', 'of-\1'\], another rank passed \['loss', 'of-.'\]", two)


AGAIN = """
import os
import torch.distributed as dist
import echelon
from echelon.errors import ConfigError

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
try:
    echelon.join()
except ConfigError as error:
    print(error.what)
dist.destroy_process_group()
first = echelon.join()
if os.fork() == 0:
    first.close()
    os._exit(0 if dist.is_initialized() else 1)
print("child", os.waitstatus_to_exitcode(os.wait()[1]))
first.close()
first.close()
try:
    first.reduce_mean({"x": 1.0})
except ConfigError as error:
    print(error.what)
second = echelon.join()
print(second is first, second.reduce_mean({"x": 1.0}))
"""


def test_a_world_is_opened_closed_and_opened_again(echelon, crowd):
    ((code, out, err),) = crowd(echelon.script("train.py", AGAIN), [{}])
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "a process group already exists",
        "child 0",
        "this World is closed",
        "False {'x': 1.0}",
    ]
