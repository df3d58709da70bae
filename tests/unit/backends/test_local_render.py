"""The job script of `--on local`, compared with a golden file."""

from pathlib import Path

import pytest

from echelon.backends.local import BACKEND
from echelon.job import Job, Resources, Script, ScriptKind
from echelon.run_dir import RunDir

GOLDEN = Path(__file__).parents[2] / "golden"

PLAIN = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4")),
    cwd="/home/ada/gpt",
    python="/home/ada/gpt/.venv/bin/python",
    scheduler="local",
    resources=Resources(nodes=2, procs_per_node=4),
)
NASTY = Job(
    name="gpt",
    script=Script(kind=ScriptKind.COMMAND, target="./run it.sh", args=("$HOME", "it's")),
    cwd="/home/ada/it's $HOME",
    python="/opt/py thon/bin/python",
    scheduler="local",
    env={"GREETING": "hello, 'world' \"$HOME\"\nsecond line", "NCCL_DEBUG": "INFO"},
)


@pytest.mark.parametrize(("job", "name"), [(PLAIN, "local.sh"), (NASTY, "local-nasty.sh")])
def test_script_equals_golden_file(job, name):
    rendered = BACKEND.render(job, RunDir(Path("/home/ada/gpt/runs/gpt-20260115-101500-7f3a")))
    assert rendered == (GOLDEN / name).read_text()
