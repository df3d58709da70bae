"""echelon.join() with real processes and gloo, without a launcher and under every launcher."""

import json
import re
import subprocess
import sys
import uuid

import pytest
from crowd import STORY

from running import DEADLINE_SECONDS

pytestmark = pytest.mark.torch


def facts(text):
    """The records that ranks printed, extracted from their output. Records of ranks that share a pipe may be on one line."""
    return [json.JSONDecoder().raw_decode(text, found.start())[0] for found in re.finditer(r'\{"rank": ', text)]


def test_single_rank_needs_no_launcher_and_has_collectives(echelon, crowd):
    ((code, out, err),) = crowd(echelon.script("train.py", STORY), [{}])
    assert (code, err) == (0, "")
    (alone,) = facts(out)
    assert alone == {
        "rank": 0,
        "size": 1,
        "local": [0, 1],
        "node": 0,
        "device": "cpu",
        "backend": "gloo",
        "sum": 1.0,
        "shard": [0, 1, 2, 3, 4],
        "mean": {"a": 2.0, "b": 0.0},
    }
    assert "said-once\n" in out


def pair(told):
    """What two ranks on one node have to find out, in the order of their ranks."""
    expected = [
        {
            "rank": rank,
            "size": 2,
            "local": [rank, 2],
            "node": 0,
            "device": "cpu",
            "backend": "gloo",
            "sum": 3.0,
            "shard": [[0, 2, 4], [1, 3, 0]][rank],
            "mean": {"a": 2.0, "b": 0.5},
        }
        for rank in range(2)
    ]
    return sorted(told, key=lambda one: one["rank"]) == expected


def test_join_works_under_torchrun(echelon):
    script = echelon.script("train.py", STORY)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script],
        env={**echelon.env, "TMPDIR": str(echelon.folder)},
        cwd=echelon.folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
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
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": "2",
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
    }


@pytest.mark.parametrize("by", [by_open_mpi, by_mpiexec, by_srun])
def test_join_works_under_mpi_and_srun_without_a_port(echelon, crowd, by):
    job = str(uuid.uuid4().int % 10**9)  # each of them makes a port of it
    done = crowd(echelon.script("train.py", STORY), [{**by(rank), "SLURM_JOB_ID": job} for rank in range(2)])
    assert [code for code, _, _ in done] == [0, 0], done
    assert pair([fact for _, out, _ in done for fact in facts(out)]), done
    assert done[1][2] == "", "the last words of a rank that outlives rank 0"


def test_file_rendezvous_needs_no_port_and_leaves_no_records(echelon, crowd):
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
