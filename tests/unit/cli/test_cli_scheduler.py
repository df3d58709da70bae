"""The choice of a scheduler and what it can use, as a user meets them."""

import os
import subprocess
import sys

import pytest

SBATCH = """#!/bin/sh
echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2
exit 1
"""


class Login:
    def __init__(self, folder):
        self.folder = folder
        (folder / "train.py").touch()
        (folder / "bin").mkdir()
        (folder / "bin" / "sbatch").write_text(SBATCH)
        (folder / "bin" / "sbatch").chmod(0o755)

    def __call__(self, *args, **variables):
        environ = {"PATH": f"{self.folder / 'bin'}:/nonexistent", "HOME": str(self.folder), **variables}
        environ |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        return subprocess.run(
            [sys.executable, "-m", "echelon", *args],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def explained(self, *args, **variables):
        done = self("render", "--explain", *args, "train.py", **variables)
        assert done.returncode == 0, done.stderr
        rows = [line.split(maxsplit=2) for line in done.stdout.splitlines()[1:]]
        return {key: (value, origin) for key, value, origin in rows}


@pytest.fixture
def login(tmp_path):
    return Login(tmp_path)


def test_detected_backend_and_reason_are_shown(login):
    assert login.explained()["on"] == ("slurm", "sbatch is on PATH")
    assert login.explained(PATH="/nonexistent")["on"] == ("local", "neither sbatch nor qsub on PATH")
    assert login.explained("--on", "local")["on"] == ("local", "--on local")


def test_allocation_is_used_completely(login):
    inside = {"SLURM_JOB_ID": "9", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_GPUS_ON_NODE": "2"}
    explained = login.explained(**inside)
    assert explained["on"] == ("allocation", "inside Slurm job 9")
    assert explained["nodes"] == ("3", "SLURM_JOB_NODELIST=n[1-3]")
    assert explained["gpus_per_node"] == ("2", "SLURM_GPUS_ON_NODE=2")


def test_defaults_for_sbatch_become_settings_that_flags_win_over(login):
    assert login.explained(SBATCH_ACCOUNT="nlp")["account"] == ("nlp", "SBATCH_ACCOUNT=nlp")
    assert login.explained("-A", "vision", SBATCH_ACCOUNT="nlp")["account"] == ("vision", "--account vision")


def test_rendering_runs_no_other_program(login):
    done = login("render", "--on", "slurm", "-g", "4", "-p", "gpu", "train.py", PATH="")
    assert done.returncode == 0
    assert "#SBATCH --gpus-per-node=4" in done.stdout.splitlines()
    assert "#SBATCH --partition=gpu" in done.stdout.splitlines()


@pytest.mark.parametrize("flag", [("-p", "gpu"), ("--mem", "1G"), ("--array", "0-3"), ("--gres",), ("--slurm", "hold")])
def test_a_flag_without_effect_is_noted_in_a_rehearsal(login, flag):
    long = {"-p": "--partition"}.get(flag[0], flag[0])
    for done in (
        login("render", "--on", "local", *flag, "train.py"),
        login("render", *flag, "train.py", ECHELON_ON="local"),
    ):
        assert done.returncode == 0
        assert done.stderr == f"echelon: no effect with backend local: {long}\n"


def test_a_flag_without_effect_is_refused_without_on_local(login):
    """The user may be on the wrong machine."""
    done = login("render", "-p", "gpu", "train.py", PATH="/nonexistent")
    assert done.returncode == 2
    assert "error: --partition has no effect with backend local" in done.stderr
    assert "from  --partition gpu; backend local: neither sbatch nor qsub on PATH" in done.stderr
    assert "try   remove --partition, or add --on slurm; --on local ignores --partition" in done.stderr


def test_a_flag_of_another_scheduler_is_refused(login):
    done = login("render", "--on", "slurm", "--pbs", "wd", "train.py")
    assert done.returncode == 2
    assert "--pbs has no effect with backend slurm" in done.stderr


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (("--gpus", "4"), "-g N"),
        (("--nproc_per_node=4",), "--procs-per-node N"),
        (("-t", "2h"), "--time 2h"),
        (("--nodess", "2"), "did you mean --nodes?"),
    ],
)
def test_flag_of_another_tool_suggests_the_right_one(login, flags, hint):
    done = login("run", *flags, "train.py")
    assert done.returncode == 2
    assert done.stderr.endswith(f"  try   {hint}\n")


def test_a_file_may_be_meant_for_another_scheduler(login):
    (login.folder / "echelon.toml").write_text('partition = "gpu"\narray = "0-3"\n[slurm]\nexclusive = true\n')
    here = login("render", "--on", "local", "train.py")
    assert here.returncode == 0
    unused, used = here.stderr.splitlines()
    assert used == f"echelon: settings from {login.folder}/echelon.toml"
    assert unused == "echelon: no effect with backend local: partition, array, slurm"
    there = login("render", "train.py")
    assert "#SBATCH --exclusive" in there.stdout.splitlines()
    assert there.stderr.splitlines() == [used]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--array", "3-1"), "is reversed"),
        (("--slurm", "nodes=3"), "set by echelon itself"),
        (("--slurm", "--exclusive"), "without dashes, for example --slurm exclusive"),
        (("--comment", "a\nb"), "one line"),
        (("--mem", "lots"), "64G"),
    ],
)
def test_value_that_slurm_cannot_accept_is_refused(login, args, words):
    done = login("render", *args, "train.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "  from  --" in done.stderr


def test_a_refusal_by_sbatch_has_four_parts_and_leaves_nothing(login):
    done = login("submit", "--qos", "best", "train.py", PATH=f"{login.folder / 'bin'}:/usr/bin:/bin")
    assert done.returncode == 4
    first, *rest = done.stderr.splitlines()
    assert first == "error: Slurm refused the job"
    assert [line.split()[0] for line in rest] == ["from", "why", "try"]
    assert list((login.folder / "runs").iterdir()) == []


def test_a_python_that_only_nodes_have_is_a_warning(login):
    done = login("render", "--python", "/opt/nodes/python", "train.py")
    assert done.returncode == 0
    assert done.stderr.startswith("echelon: warning: no Python at /opt/nodes/python on this machine")
