"""Real ranks that are killed, stopped and restarted in any number: no sample is lost, and the weights are the same."""

import json
import os
import random
import re
import signal
import subprocess
import sys

import pytest
from crowd import free_port

from echelon.train.checkpoint.verify import committed_checkpoints
from echelon.train.sampler import ElasticSampler
from running import DEADLINE_SECONDS, SCRIPTS, wait_for

pytestmark = pytest.mark.torch
LEARN = SCRIPTS / "learn.py"
LENGTH, BATCH = 203, 3  # of learn.py


def endings(text):
    """What each rank ended with."""
    return dict(re.findall(r"rank (\d+) ends at (\d+ with \w+)", text))


def order_of(folder):
    """The samples in the order in which all ranks together took them; a step that was taken again counts once."""
    steps: dict[int, dict[int, dict]] = {}
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            taken = json.loads(line)
            steps.setdefault(taken["step"], {})[int(path.name.removeprefix("rank-"))] = taken
    order: dict[int, list[int]] = {}
    for _, ranks in sorted(steps.items()):
        size = ranks[0]["size"]
        dealt = [ranks[rank]["ids"] for rank in range(size)]
        assert {ranks[rank]["size"] for rank in range(size)} == {size}, "all ranks were at the same start"
        order.setdefault(ranks[0]["epoch"], []).extend(ids for turn in zip(*dealt, strict=True) for ids in turn)
    return order


def assert_in_order(folder, epochs):
    """Checks that every sample was used once per epoch, in the order of the epoch."""
    order = order_of(folder)
    for epoch in range(epochs):
        sampler = ElasticSampler(LENGTH, rank=0, world_size=1, seed=11)
        sampler.set_epoch(epoch)
        whole = list(sampler)
        if epoch + 1 < epochs:
            assert order[epoch][:LENGTH] == whole
            assert order[epoch][LENGTH:] == whole[: len(order[epoch]) - LENGTH], "the last round is filled up"
        else:
            assert order[epoch] == whole[: len(order[epoch])]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What four ranks end with when nothing happens to them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = subprocess.run(
        [sys.executable, "-m", "echelon", "run", "--on", "local", "-g", "4", LEARN, "--records", folder / "records"],
        env={**os.environ, "ECHELON_RUNS": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    ends = endings(done.stdout)
    assert len(ends) == 4
    return ends, order_of(folder / "records")


def newest(run):
    return max((name.step for name in committed_checkpoints(run.path / "checkpoints")), default=0)


def test_killed_stopped_and_requeued_run_has_the_same_weights(echelon, undisturbed):
    run = echelon.submit("-g", "4", "--restarts", "9", "--requeues", "9", LEARN, "--seconds", "0.1", "--every", "3")
    draw = random.Random(3)
    attempt = generation = 0
    for what in ("kill", "kill", "notice", "kill", "notice"):
        before = newest(run)
        wait_for(lambda before=before: newest(run) > before + 3, "two more checkpoints")
        if what == "kill":
            pids = {
                e["rank"]: e["pid"]
                for e in run.events("rank_ready")
                if e["generation"] == generation and e["attempt"] == attempt
            }
            os.kill(pids[draw.randrange(4)], signal.SIGKILL)
            generation += 1
        else:
            os.kill(run.supervisor(), signal.SIGUSR1)
            attempt, generation = attempt + 1, 0
        wait_for(lambda a=attempt, g=generation: started(run, a, g) or run.events("finished"), "the next start")
    assert run.wait()["outcome"] == "succeeded"
    last = max(event["attempt"] for event in run.events("rank_ready"))  # all may be done before they hear of a notice
    said = "".join(run.rank_log(rank, last) for rank in range(4))
    assert (endings(said), order_of(echelon.folder / "records")) == undisturbed
    assert [event["reason"] for event in run.events("requeued")] == ["the ranks stopped in time"] * 2
    assert all("was killed by SIGKILL" in event["fault"] for event in run.events("fault"))
    assert {"step", "seconds", "bytes"} <= set(run.events("checkpoint")[0])
    listed = json.loads(echelon("checkpoints", "--verify", "--json", run.id).stdout)
    assert [one["verified"] for one in listed] == [True] * 3
    assert listed[-1]["step"] == 60


def started(run, attempt, generation):
    ready = [e for e in run.events("rank_ready") if (e["attempt"], e["generation"]) == (attempt, generation)]
    return len(ready) == 4


def test_samples_keep_their_order_on_four_two_and_three_ranks(echelon):
    for ranks, until in ((4, 12), (2, 40), (3, 61)):
        result = echelon("run", "-g", str(ranks), LEARN, "--folder", "saved", "--until", str(until))
        assert result.returncode == 0, result.stderr + result.stdout
        assert len(set(re.findall(r"ends at (\d+)", result.stdout))) == 1
    assert_in_order(echelon.folder / "records", 3)
    shown = echelon("checkpoints", "saved")
    assert shown.stdout.splitlines()[-1].split()[0] == "61"


def ranks_by_hand(echelon, size, *args):
    """Ranks without a supervisor."""
    port = str(free_port())
    return [
        subprocess.Popen(
            [sys.executable, LEARN, *args],
            cwd=echelon.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **echelon.env,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(size)
    ]


def test_a_bare_signal_to_one_rank_stops_all_of_them_at_one_step(echelon):
    ranks = ranks_by_hand(echelon, 2, "--until", "100000", "--seconds", "0.002", "--every", "1000000")
    try:
        record = echelon.folder / "records" / "rank-1"
        wait_for(lambda: record.exists() and record.read_text().count("\n") > 20, "some steps")
        ranks[1].send_signal(signal.SIGTERM)
        said = [rank.communicate(timeout=DEADLINE_SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [75, 75], said
    (name,) = committed_checkpoints(echelon.folder / "checkpoints")
    taken = [len((echelon.folder / "records" / f"rank-{rank}").read_text().splitlines()) for rank in range(2)]
    assert taken == [name.step] * 2


POISONED = """
import os, signal, torch, echelon

with echelon.Checkpoint(every=10, asynchronous=False, model=torch.nn.Linear(2, 2)) as checkpoint:
    restored = checkpoint.step
    for batch in checkpoint.steps(range(1000), until=40):
        if restored == 0 and checkpoint.step == 25:
            os.kill(os.getpid(), signal.SIGKILL)
        if restored == 20 and checkpoint.step == 22:
            raise FloatingPointError("loss is nan")
"""


def test_checkpoint_that_fails_three_times_is_set_aside(echelon):
    result = echelon("run", "--restarts", "9", echelon.script("poisoned.py", POISONED))
    assert result.returncode == 0, result.stdout + result.stderr
    run = echelon.only_run()
    assert [event["rule"].rpartition("; ")[2] for event in run.events("fault")][-1] == "going back one checkpoint"
    assert len(run.events("fault")) == 4
    assert "set aside step-00000020" in run.rank_log(0)
    assert run.rank_log(0).count("resumed from step 20 ") == 3
    assert run.rank_log(0).count("resumed from step 10 ") == 1
