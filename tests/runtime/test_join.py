"""echelon.join() with real processes and gloo: alone, under every launcher, with peers that stay away or fail."""

import json
import os
import re
import socket
import subprocess
import sys
import uuid
from contextlib import ExitStack

import pytest

from running import DEADLINE_SECONDS

pytestmark = pytest.mark.torch

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
    """Some processes of one script, each with variables of its own."""

    def __init__(self, tool):
        self.tool = tool
        self.stack = ExitStack()

    def start(self, script, environs, *args):
        return [
            self.stack.enter_context(
                subprocess.Popen(
                    [sys.executable, script, *args], env={**self.tool.env, **environ}, cwd=self.tool.folder, text=True,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
            )
            for environ in environs
        ]  # fmt: skip

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


def facts(text):
    """What ranks told of themselves, among whatever else they printed, and glued together where they share a pipe."""
    return [json.JSONDecoder().raw_decode(text, found.start())[0] for found in re.finditer(r'\{"rank": ', text)]


def test_alone_it_needs_nothing_and_collectives_work(echelon, crowd):
    ((code, out, err),) = crowd(echelon.script("train.py", STORY), [{}])
    assert (code, err) == (0, "")
    (alone,) = facts(out)
    assert alone == {
        "rank": 0, "size": 1, "local": [0, 1], "node": 0, "device": "cpu", "backend": "gloo", "sum": 1.0,
        "shard": [0, 1, 2, 3, 4], "mean": {"a": 2.0, "b": 0.0},
    }  # fmt: skip
    assert "said-once\n" in out


def pair(told):
    """What two ranks on one node have to find out, in the order of their ranks."""
    expected = [
        {
            "rank": rank, "size": 2, "local": [rank, 2], "node": 0, "device": "cpu", "backend": "gloo", "sum": 3.0,
            "shard": [[0, 2, 4], [1, 3, 0]][rank], "mean": {"a": 2.0, "b": 0.5},
        }
        for rank in range(2)
    ]  # fmt: skip
    return sorted(told, key=lambda one: one["rank"]) == expected


def test_under_torchrun(echelon):
    script = echelon.script("train.py", STORY)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script],
        env={**echelon.env, "TMPDIR": str(echelon.folder)}, cwd=echelon.folder, capture_output=True, text=True,
        timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert pair(facts(done.stdout)), done.stdout
    assert done.stdout.count("said-once") == 1
    assert done.stderr.count("echelon: 5 items on 2 ranks: 3 each, 1 repeated") == 1


def by_open_mpi(rank):
    names = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in names.items()}


def by_mpiexec(rank):
    return {"PMI_RANK": str(rank), "PMI_SIZE": "2", "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2"}


def by_srun(rank):
    return {
        "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NODELIST": "localhost",
    }  # fmt: skip


@pytest.mark.parametrize("by", [by_open_mpi, by_mpiexec, by_srun])
def test_under_mpi_and_srun_which_tell_no_port(echelon, crowd, by):
    job = str(uuid.uuid4().int % 10**9)  # each of them makes a port of it
    done = crowd(echelon.script("train.py", STORY), [{**by(rank), "SLURM_JOB_ID": job} for rank in range(2)])
    assert [code for code, _, _ in done] == [0, 0], done
    assert pair([fact for _, out, _ in done for fact in facts(out)]), done
    assert done[1][2] == "", "the last words of a rank that outlives rank 0"


def test_at_a_file_no_port_is_needed_and_the_next_start_finds_no_ghosts(echelon, crowd):
    where = echelon.folder / "meet here"
    environs = [{"RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    done = crowd(echelon.script("train.py", STORY), environs, where.as_uri())
    assert [code for code, _, _ in done] == [0, 0], done
    assert pair([fact for _, out, _ in done for fact in facts(out)]), done
    assert not where.exists() or b"here/" not in where.read_bytes(), "torch's last stroke may make it anew, and empty"


TRAINING = """
import json, os
import torch
import echelon

with echelon.join() as world:
    torch.manual_seed(world.rank)
    model = world.wrap(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), float(world.rank))).sum().backward()
    if os.environ["ECHELON_GENERATION"] == "0" and world.rank == 3:
        os.kill(os.getpid(), 9)
    parts = [world.shard(torch.arange(6).reshape(3, 2)).tolist(), world.shard("abc", drop=True), world.shard([])]
    means = world.reduce_mean({"x": 2.0 ** world.rank})
    again = world.reduce_mean({})
    print(json.dumps({
        "rank": world.rank, "node": world.node_rank, "grad": model.module.weight.grad.tolist(), "parts": parts,
        "weight": model.module.weight.tolist(), "means": means, "again": again,
    }))
assert not torch.distributed.is_initialized()
"""


def test_under_echelon_on_two_nodes_and_again_after_a_fault(echelon):
    script = echelon.script("train.py", TRAINING)
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(echelon.folder)}  # DistributedDataParallel makes one in TMPDIR
    result = echelon("run", "-N", "2", "-g", "2", "--restarts", "1", script, env=cache)
    assert result.returncode == 0, result.stderr + result.stdout
    told = sorted(facts(result.stdout), key=lambda one: one["rank"])
    assert [(one["rank"], one["node"]) for one in told] == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert all(one["grad"] == [[1.5, 1.5]] for one in told), "the mean over the ranks"
    assert all(one["weight"] == told[0]["weight"] for one in told), "as rank 0 had it"
    assert all((one["means"], one["again"]) == ({"x": 15 / 4}, {}) for one in told)
    assert [one["parts"] for one in told] == [[[rows], [], []] for rows in ([0, 1], [2, 3], [4, 5], [0, 1])]


TOGETHER = """
import os, time
from datetime import timedelta
from pathlib import Path
import torch.distributed
import echelon

Path(os.environ["RANK"]).touch()
while not all(Path(rank).exists() for rank in "02"):
    time.sleep(0.01)
echelon.join(timeout=timedelta(seconds=3))
"""


def test_missing_ranks_are_named_to_all_that_came(echelon, crowd):
    first, _, third, _ = hand_set(4)
    done = crowd(echelon.script("train.py", TOGETHER), [first, third])
    assert [code for code, _, _ in done] == [1, 1]
    for _, _, err in done:
        assert "error: 2 of 4 ranks did not come within 3 s: rank 1, rank 3\n" in err
        assert "echelon.join(timeout=...)" in err


def test_a_missing_rank_0_is_named_too(echelon, crowd):
    script = echelon.script("train.py", STORY.replace("seconds=60", "seconds=1"))
    _, second = hand_set(2)
    ((code, _, err),) = crowd(script, [second])
    assert code == 1
    assert f"error: rank 0 is missing: nothing answered at 127.0.0.1:{second['MASTER_PORT']} for 1 s\n" in err
    assert "Connection refused" in err


def test_a_taken_port_is_said_and_not_waited_for(echelon, crowd):
    with socket.create_server(("", 0)) as server:
        port = str(server.getsockname()[1])
        ((code, _, err),) = crowd(echelon.script("train.py", STORY), [{**hand_set(2)[0], "MASTER_PORT": port}])
    assert code == 1
    assert f"error: rank 0 cannot listen on port {port}\n" in err
    assert "address already in use" in err


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


def test_the_main_rank_goes_first_on_its_node_or_of_all_and_the_others_wait(echelon):
    result = echelon("run", "-N", "2", "-g", "2", echelon.script("train.py", FIRST))
    assert result.returncode == 0, result.stderr + result.stdout
    diary = lines_of(echelon)
    assert diary.index("0 done local") < diary.index("1 in local")
    assert diary.index("2 done local") < diary.index("3 in local")
    inside = [line for line in diary[diary.index("0 done global") :] if line.endswith("in global")]
    assert sorted(inside) == [f"{rank} in global" for rank in range(4)]


def test_a_failure_of_the_main_rank_is_everybodys_and_the_verdict_is_the_cause(echelon):
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


def test_a_main_rank_that_leaves_is_heard_even_though_its_store_goes_with_it(echelon, crowd):
    main, other = crowd(echelon.script("train.py", FAILING), hand_set(2))
    assert main[::2] == (1, "no such dataset: cifar11\n")
    assert other[::2] == (0, "")
    assert other[1].startswith("error: SystemExit: no such dataset: cifar11\n  from  world.main_first on rank 0\n")


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


def test_keys_that_differ_are_refused_before_anything_is_summed(echelon):
    result = echelon("run", "-g", "2", echelon.script("train.py", KEYS))
    one, two = sorted(line.partition("] ")[2] for line in result.stdout.splitlines())
    assert one == "lost its peer"
    assert re.fullmatch(r"rank (.) brings the keys \['loss', 'of-\1'\], and another rank \['loss', 'of-.'\]", two)


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
        "there is a process group already", "child 0", "this World is closed", "False {'x': 1.0}",
    ]  # fmt: skip


def test_a_bad_environment_is_refused_before_torch_is_asked(echelon, crowd):
    script = echelon.script(
        "train.py", "import echelon, sys\ntry: echelon.join()\nfinally: print('torch' in sys.modules)\n"
    )
    ((code, out, err),) = crowd(script, [{"RANK": "2", "WORLD_SIZE": "2"}])
    assert (code, out) == (1, "False\n")
    assert "error: RANK is 2, but WORLD_SIZE is 2\n" in err
    assert os.environ.get("RANK") is None
