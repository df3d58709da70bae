"""Plain scripts on this machine: real torchrun, accelerate and bash, without echelon."""

import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

import echelon
from echelon.backends.plain import render
from echelon.job import EnvironmentSpec, Job, LauncherOptions, Policies, Resources, Script, ScriptKind
from running import SCRIPTS, marked_processes, wait_for

pytestmark = pytest.mark.torch
PLAIN = SCRIPTS / "plain.py"
STANDINS = Path(__file__).parents[1] / "standins"
WITH_THE_LIBRARY = """
import time
import torch
import echelon

world = echelon.join()
data = torch.utils.data.TensorDataset(torch.arange(8192.0)[:, None])
model = world.wrap(torch.nn.Linear(1, 1))
sampler = echelon.ElasticSampler(data)
loader = torch.utils.data.DataLoader(data, sampler=sampler, batch_size=8)
with echelon.Checkpoint("saved", model=model, sampler=sampler, every=None) as checkpoint:
    for _ in checkpoint.steps(loader, epochs=100, until=checkpoint.step + 20 if checkpoint.step else None):
        time.sleep(0.05)
world.print(f"done after {checkpoint.step} steps")
"""


class Bash:
    """Runs plain scripts in a separate folder, in an environment without echelon."""

    def __init__(self, folder):
        self.folder = folder
        self.mark = uuid.uuid4().hex
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        self.env = {
            **kept,
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(self.tmp),
            "TEST_MARK": self.mark,
            "OMP_NUM_THREADS": "1",
        }

    def start(self, *args, launcher="ranks", nodes=2, procs=1, target=PLAIN, python=sys.executable, **more):
        script = Script(kind=ScriptKind.FILE, target=str(target), args=tuple(map(str, args)))
        job = Job(
            name="gpt",
            script=script,
            cwd=str(self.folder),
            python=python,
            scheduler="local",
            launcher=launcher,
            resources=Resources(nodes=nodes, procs_per_node=procs, time_limit=more.pop("limit", None)),
            **more,
        )
        path = self.folder / "plain.sh"
        path.write_text(render(job, self.env))
        return subprocess.Popen(
            ["bash", path],
            env=self.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *args, **more):
        process = self.start(*args, **more)
        out, _ = process.communicate(timeout=120)
        return process.returncode, out


@pytest.fixture
def bash(tmp_path):
    tool = Bash(tmp_path)
    yield tool
    wait_for(lambda: not marked_processes(tool.mark), f"{marked_processes(tool.mark)} to be gone", 15)
    assert list(tool.tmp.glob("tmp.*")) == [], "the script's own folder"
    assert list(tool.tmp.glob("torchelastic*")) == [], "the launcher's"


def sums(out):
    return sorted(line.partition(" local")[0] for line in out.splitlines() if " sum " in line)


@pytest.mark.parametrize(
    ("launcher", "procs", "total"), [("ranks", 2, "10.0"), ("accelerate", 1, "3.0"), ("legacy", 1, "3.0")]
)
def test_two_nodes_train_together_with_unchanged_arguments(bash, launcher, procs, total):
    code, out = bash("--lr", "it's $HOME", launcher=launcher, procs=procs, env={"NASTY": "a 'b'\n\"$c\""})
    assert code == 0, out
    assert sums(out) == [f"rank {rank} sum {total}" for rank in range(2 * procs)]
    last = f"rank {2 * procs - 1} sum {total} local {procs - 1}"
    assert f"""{last} ['--lr', "it's $HOME"] 'a \\'b\\'\\n"$c"'""" in out


def test_c10d_rendezvous_uses_an_address_not_a_name(bash):
    """By default torchrun passes the host name of the first node, which may resolve to any address."""
    code, out = bash(launching=LauncherOptions(rdzv="c10d"))
    assert (code, sums(out)) == (0, ["rank 0 sum 3.0", "rank 1 sum 3.0"]), out
    assert out.count(" at 127.0.0.1\n") == 2


def test_accelerate_sees_all_ranks_without_gpus(bash, tmp_path):
    script = tmp_path / "see.py"
    script.write_text(
        "from accelerate import Accelerator\n"
        "state = Accelerator().state\n"
        "print(f'seen {state.process_index} of {state.num_processes}\\n', end='', flush=True)\n"
    )
    code, out = bash(launcher="accelerate", nodes=1, procs=2, target=script)
    seen = sorted(line for line in out.splitlines() if "seen" in line)
    assert (code, seen) == (0, ["seen 0 of 2", "seen 1 of 2"]), out


def test_conda_environment_is_entered_on_the_nodes(bash, tmp_path):
    """A stand-in: conda itself can be had from neither pip nor Debian."""
    inside = tmp_path / "envs" / "ml"
    for folder in ("bin", "conda-meta"):
        (inside / folder).mkdir(parents=True)
    python = inside / "bin" / "python"
    python.write_text(
        f'#!/bin/bash\necho "by the python of ${{CONDA_DEFAULT_ENV-nobody}}"\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    bash.env |= {"CONDA_EXE": str(STANDINS / "conda"), "STANDIN_ENVS": str(tmp_path / "envs")}
    ml = {"environment": "conda", "python": "python", "enclosure": EnvironmentSpec(conda="ml")}
    code, out = bash(nodes=1, **ml)
    assert (code, sums(out)) == (0, ["rank 0 sum 1.0"]), out
    assert out.count("by the python of ml\n") == 2, "the launcher's and the rank's"
    code, out = bash(nodes=1, **{**ml, "enclosure": EnvironmentSpec(conda="other")})
    assert (code, "Could not find conda environment: other" in out) == (1, True), out


def test_script_exits_with_the_code_of_the_failed_rank(bash):
    """torchrun itself would have exited with 1; the other node's ranks would sleep on."""
    code, out = bash("--do", "fail", "--who", "1", "--code", "7")
    assert code == 7, out
    assert "waiting" in out


def test_exit_75_starts_the_next_attempt_up_to_the_limit(bash, tmp_path):
    words = ("--do", "again", "--count", tmp_path / "count", "--starts", "3")
    code, out = bash(*words, nodes=1, policies=Policies(requeues=1))
    assert (code, (tmp_path / "count").read_text()) == (75, "2"), out
    code, out = bash(*words, nodes=1, policies=Policies(requeues=1))
    assert code == 0, out


def test_ranks_finish_after_the_notice_before_the_next_start(bash, tmp_path):
    policies = Policies(requeues=1, notice=timedelta(seconds=290))
    words = ("--do", "stop", "--count", tmp_path / "count", "--starts", "2")
    code, out = bash(*words, limit=timedelta(seconds=300), policies=policies)
    assert code == 0, out
    assert sorted(line for line in out.splitlines() if "saved" in line) == ["rank 0 saved", "rank 1 saved"]


def test_script_with_the_library_stops_at_the_notice_and_resumes(bash, tmp_path):
    """The library needs no agent for that: it looks for the script's own file."""
    script = tmp_path / "train.py"
    script.write_text(WITH_THE_LIBRARY)
    library = {"PYTHONPATH": str(Path(echelon.__file__).parents[1])}
    early = Policies(notice=timedelta(seconds=295))
    code, out = bash(target=script, limit=timedelta(seconds=300), policies=early, env=library)
    assert code == 75, out
    stopped = int(re.search(r"stop notice: saving and stopping at step (\d+)", out)[1])
    code, out = bash(target=script, env=library)
    assert code == 0, out
    assert f"resumed from step {stopped} (saved by 2 ranks)" in out
    assert f"done after {stopped + 20} steps" in out


def test_plain_script_ends_at_the_time_limit(bash):
    code, out = bash("--do", "hang", nodes=1, limit=timedelta(seconds=12))
    assert code == 124, out


def test_every_cancel_ends_all_processes(bash):
    process = bash.start("--do", "hang", policies=Policies(requeues=3))
    lines = iter(process.stdout.readline, "")
    assert next(line for line in lines if "waiting" in line)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143, out
