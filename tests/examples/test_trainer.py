"""The example with echelon.Trainer: it learns, and continues exactly after every kind of stop."""

import os
import re
import signal
import uuid
from collections import Counter
from pathlib import Path

import pytest

from local_tool import Tool
from running import wait_for

SCRIPT = Path(__file__).parents[2] / "examples" / "trainer" / "train.py"
STEPS, SAMPLES, BATCH = 75, 1150, 64
SHAPE = ("-N", "2", "--procs-per-node", "2")
ARGS = ("--steps", STEPS, "--every", "10")
NUMBERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """An uninterrupted run and its folder. The other runs must reach the same weights."""
    tool = Tool(tmp_path_factory.mktemp("undisturbed"), uuid.uuid4().hex)
    result = tool("run", *SHAPE, SCRIPT, *ARGS)
    assert result.returncode == 0, result.stderr + result.stdout
    return tool, result.stdout


def weights(output):
    (digest,) = re.findall(rf"^\[0\] weights (\w+) after {STEPS} steps$", output, re.MULTILINE)
    return digest


def steps_of(folder, rank):
    """The samples of each step, from its last execution: steps after the last checkpoint run again."""
    lines = [list(map(int, line.split())) for line in (folder / f"rank-{rank}").read_text().splitlines()]
    return {line[0]: line[1:] for line in lines}, len(lines)


def test_trainer_learns_and_its_model_can_be_exported(undisturbed):
    tool, output = undisturbed
    losses = [float(loss) for loss in re.findall(r"step +\d+  epoch +\d+  loss (\S+)", output)]
    assert len(losses) == 2
    assert losses[0] > 3
    assert losses[-1] < 0.6
    (said,) = re.findall(r"^\[0\] ninety-eight, (.*), [^,]*$", output, re.MULTILINE)
    words = re.split(r", |-", said)
    assert len(words) > 5
    assert set(words) <= set(NUMBERS.split()), "every word of it is a number"
    assert tool("export", tool.only_run().id, "reader.pt").returncode == 0
    assert (tool.folder / "reader.pt").stat().st_size > 100_000


def test_kill_loses_no_sample_and_keeps_the_weights(echelon, undisturbed):
    result = echelon(
        "run", *SHAPE, "--restarts", "1", SCRIPT, *ARGS, "--kill-rank", "3", "--kill-at", "45", "--trace", "seen"
    )
    assert result.returncode == 0, result.stderr + result.stdout
    assert "rank 3 on node1 was killed by SIGKILL" in result.stderr
    assert re.search(r"resumed from step [1-4]0 ", result.stdout), "in the middle of an epoch"
    taken = [steps_of(echelon.folder / "seen", rank) for rank in range(4)]
    assert max(lines for _, lines in taken) > STEPS, "some steps were taken again"
    rounds = -(-SAMPLES // BATCH)
    for epoch in range(STEPS // rounds):
        steps = range(epoch * rounds, (epoch + 1) * rounds)
        seen = Counter(sample for steps_taken, _ in taken for step in steps for sample in steps_taken[step])
        filled_up = seen.total() - SAMPLES
        assert sorted(seen) == list(range(SAMPLES))
        assert 0 <= filled_up < 4, "only to give the last batches of an epoch the same length"
    assert weights(result.stdout) == weights(undisturbed[1])


def test_trainer_saves_at_the_notice_and_is_requeued(echelon, undisturbed):
    run = echelon.submit(*SHAPE, "--requeues", "1", SCRIPT, *ARGS)
    wait_for(lambda: run.events("checkpoint"), "the first checkpoint")
    os.kill(run.supervisor(), signal.SIGUSR1)  # what the clock does, without waiting for it
    assert run.wait()["outcome"] == "succeeded", echelon("logs", run.id).stdout
    assert [event["attempt"] for event in run.events("requeued")] == [0]
    stopped = re.findall(r"stopping at step (\d+)", run.rank_log(0))
    assert f"resumed from step {int(stopped[0])} " in run.rank_log(0, attempt=1)
    assert weights(echelon("logs", run.id).stdout) == weights(undisturbed[1])


def test_interrupted_trainer_is_cancelled_and_resumes(echelon, undisturbed):
    process = echelon.start("run", *SHAPE, SCRIPT, *ARGS)
    run = wait_for(lambda: list(echelon.folder.glob("runs/*/events.jsonl")) and echelon.only_run(), "the run")
    wait_for(lambda: run.events("checkpoint"), "the first checkpoint")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 143, said
    assert "cancelling" in said
    assert run.status()["state"] == "CANCELLED"
    result = echelon("resume", run.id)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "resumed from step " in result.stdout
    assert weights(result.stdout) == weights(undisturbed[1])
