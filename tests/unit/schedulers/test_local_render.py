"""The job script of `--on local`, as a file to be read in diffs."""

from pathlib import Path

import pytest

from echelon.job import Job, Resources, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.schedulers import local

GOLDEN = Path(__file__).parents[2] / "golden"

PLAIN = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4")),
    cwd="/home/ada/gpt",
    python="/home/ada/gpt/.venv/bin/python",
    resources=Resources(nodes=2, procs_per_node=4),
)
NASTY = Job(
    name="gpt",
    script=Script(kind=ScriptKind.COMMAND, target="./run it.sh", args=("$HOME", "it's")),
    cwd="/home/ada/it's $HOME",
    python="/opt/py thon/bin/python",
    env={"GREETING": "hello, 'world' \"$HOME\"\nsecond line", "NCCL_DEBUG": "INFO"},
)


@pytest.mark.parametrize(("job", "name"), [(PLAIN, "local.sh"), (NASTY, "local-nasty.sh")])
def test_the_script_is_the_golden_one(job, name):
    rendered = local.render(job, RunDir(Path("/home/ada/gpt/runs/gpt-20260115-101500-7f3a")))
    assert rendered == (GOLDEN / name).read_text()
