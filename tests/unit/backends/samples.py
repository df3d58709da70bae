"""Jobs that every batch scheduler's script is rendered for."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.run_dir import RunDir

GOLDEN = Path(__file__).parents[2] / "golden"
RUN = RunDir(Path("/home/ada/gpt/runs/gpt-20260115-101500-7f3a"))
NASTY_RUN = RunDir(Path("/home/ada/it's 100% $HOME/gpt-20260115-101500-7f3a"))


def plain(scheduler: str) -> Job:
    return Job(
        name="gpt",
        script=Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4")),
        cwd="/home/ada/gpt",
        python="/home/ada/gpt/.venv/bin/python",
        scheduler=scheduler,
    )


def large(scheduler: str) -> Job:
    """Every resource is asked for."""
    return replace(
        plain(scheduler),
        resources=Resources(
            nodes=4,
            spare_nodes=1,
            procs_per_node=8,
            gpus_per_node=8,
            cpus=96,
            memory="900G",
            time_limit=timedelta(days=1, hours=12),
        ),
        policies=Policies(notice=timedelta(minutes=5)),
    )


def awkward(scheduler: str) -> Job:
    """Everything that a shell or a scheduler could take for something else."""
    return replace(
        plain(scheduler),
        script=Script(kind=ScriptKind.COMMAND, target="./run it.sh", args=("$HOME", "it's")),
        cwd="/home/ada/it's $HOME 100% \\o/ #1",
        python="/opt/py thon/bin/python",
        env={"GREETING": "hello, 'world' \"$HOME\"\nsecond line"},
    )
