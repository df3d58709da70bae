"""Scripts for older launchers, stopped by a notice and requeued, have the losses of an uninterrupted run."""

import csv
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from running import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "requeue"
STEPS = 60
ON_ONE_DEVICE = """
import torch
import torch.distributed as dist
from task import all_must_stop
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("meta:fake", store=FakeStore(), rank=0, world_size=2)
try:
    all_must_stop(torch.device("meta"))
except RuntimeError as error:
    print(error)
"""


@pytest.fixture
def folder(tmp_path):
    """A copy, so that saved files are not written to the examples."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "requeue", ignore=shutil.ignore_patterns("__pycache__", "*-out")))


def losses(file: Path) -> list[list[str]]:
    with file.open() as opened:
        return list(csv.reader(opened))


@pytest.mark.torch
@pytest.mark.parametrize(("launcher", "script"), [("accelerate", "with_accelerate.py"), ("legacy", "with_launch.py")])
def test_stopped_run_has_the_losses_of_an_uninterrupted_run(echelon, folder, launcher, script):
    flags = ["-N", "2", "--procs-per-node", "1", "--time", "10m", "--notice", "5m", "--requeues", "1"]
    run = echelon.submit(
        "--launcher", launcher, *flags, folder / script, "--out", "stopped", "--steps", STEPS, "--pause", "0.2"
    )
    noted = echelon.folder / "stopped" / "loss.csv"
    wait_for(lambda: noted.exists() and len(losses(noted)) > 5, "a few steps")
    os.kill(run.supervisor(), signal.SIGUSR1)
    assert run.wait()["outcome"] == "succeeded"
    assert [event["attempt"] for event in run.events("started")] == [0, 1]
    assert "stopped in time at step" in run.rank_log(0)
    assert f"after {STEPS} steps" in run.rank_log(0, attempt=1)
    whole = echelon("run", *flags, folder / script, "--out", "whole", "--steps", STEPS, "--pause", "0")
    assert whole.returncode == 0, whole.stderr
    assert losses(noted) == losses(echelon.folder / "whole" / "loss.csv")
    assert [int(step) for step, _ in losses(noted)] == list(range(STEPS))


@pytest.mark.torch
def test_ranks_agree_to_stop_on_their_own_device(folder):
    """In a group that, like nccl's, knows one kind of device alone, and not the CPU. All that fails on that device is
    to look at the answer, for it holds no numbers."""
    script = folder / "agree.py"
    script.write_text(ON_ONE_DEVICE)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "Tensor.item() cannot be called on meta tensors\n"), done.stderr


@pytest.mark.torch
def test_snapshot_command_of_the_readme_prints_its_output(echelon, folder):
    text = (folder / "README.md").read_text()
    (line,) = re.findall(r"^    echelon (run --snapshot .*)$", text, re.MULTILINE)
    words = [word.replace("$PWD", str(folder)) for word in shlex.split(line)]
    result = echelon(*words, "--steps", "2", "--pause", "0", cwd=folder)
    assert result.returncode == 0, result.stderr
    (shown,) = re.findall(r"^    (echelon: snapshot of .*)$", text, re.MULTILINE)
    (said,) = [line for line in result.stderr.splitlines() if "snapshot of" in line]
    assert re.sub(r"[\d.]+ KiB", "", said) == re.sub(r"[\d.]+ KiB", "", shown.replace("/home/ada/requeue", str(folder)))
    assert [int(step) for step, _ in losses(folder / "launch-out" / "loss.csv")] == [0, 1]


def test_the_picture_has_both_runs(echelon, folder):
    for name in ("undisturbed", "stopped"):
        (folder / f"{name}.csv").write_text("".join(f"{step},{1 / (step + 1):.6f}\n" for step in range(20)))
    scope = {"__name__": "__main__"}
    picture = folder / "curve.svg"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "sys.argv", ["plot.py", *(str(folder / f"{n}.csv") for n in ("undisturbed", "stopped")), str(picture)]
        )
        exec(compile((folder / "plot.py").read_text(), "plot.py", "exec"), scope)  # noqa: S102
    assert picture.read_text().count("<circle") == 4
    assert picture.read_text().count("<polyline") == 1
