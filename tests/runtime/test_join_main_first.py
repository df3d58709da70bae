"""world.main_first: the main rank runs first, the others wait, and its failure fails all ranks."""

import pytest
from crowd import hand_set

pytestmark = pytest.mark.torch
FIRST = """
import sys, time
from pathlib import Path
import echelon

diary = Path("diary")

def write(line):
    with diary.open("a") as file:
        file.write(f"{line}\\n")

def written(line, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and line not in diary.read_text().splitlines():
        time.sleep(0.01)
    return line in diary.read_text().splitlines()

world = echelon.join()
for kind in ("local", "global"):
    main = (world.local_rank if kind == "local" else world.rank) == 0
    write(f"{world.rank} comes to {kind}")
    with world.main_first(local=kind == "local"):
        if main:
            last = world.rank + 1 if kind == "local" else world.size - 1
            assert written(f"{last} comes to {kind}", 60)
            assert (world.rank, kind) != (2, "local") or written("1 in local", 60), "the other node does not wait for us"
            assert not written(f"{last} in {kind}", 0.3), "it did not wait"
            if "fail" in sys.argv:
                raise LookupError("no such dataset: cifar11")
            write(f"{world.rank} done {kind}")
        write(f"{world.rank} in {kind}")
"""


def lines_of(echelon):
    return (echelon.folder / "diary").read_text().splitlines()


def test_main_first_runs_first_globally_or_per_node(echelon):
    result = echelon("run", "-N", "2", "-g", "2", echelon.script("train.py", FIRST))
    assert result.returncode == 0, result.stderr + result.stdout
    diary = lines_of(echelon)
    assert diary.index("0 done local") < diary.index("1 in local")
    assert diary.index("2 done local") < diary.index("3 in local")
    inside = [line for line in diary[diary.index("0 done global") :] if line.endswith("in global")]
    assert sorted(inside) == [f"{rank} in global" for rank in range(4)]


def test_main_rank_failure_ends_all_ranks_and_is_the_verdict(echelon):
    result = echelon("run", "-g", "2", echelon.script("train.py", FIRST), "fail")
    assert result.returncode != 0
    assert "rank 0 on node0 raised LookupError: no such dataset: cifar11" in result.stderr
    assert not [line for line in lines_of(echelon) if " in " in line]


FAILING = """
import sys
import echelon
from echelon.errors import JobFailed

world = echelon.join()
try:
    with world.main_first():
        if world.rank == 0:
            sys.exit("no such dataset: cifar11")
        print("went in")
except JobFailed as error:
    print(error)
"""


def test_exit_of_main_rank_is_reported_without_its_store(echelon, crowd):
    main, other = crowd(echelon.script("train.py", FAILING), hand_set(2))
    assert main[::2] == (1, "no such dataset: cifar11\n")
    assert other[::2] == (0, "")
    assert other[1].startswith("error: SystemExit: no such dataset: cifar11\n  from  world.main_first on rank 0\n")
