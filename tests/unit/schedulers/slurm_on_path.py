"""Slurm's tools as programs of ours, first on PATH, which write down what they were asked."""

import json
import os
import sys

import pytest

from echelon.run_dir import RunDir
from echelon.schedulers import slurm

FAKE = """#!{python}
import json, os, sys
name = os.path.basename(sys.argv[0])
with open({log!r}, "a") as log:
    log.write(json.dumps({{"argv": [name, *sys.argv[1:]], "env": dict(os.environ)}}) + "\\n")
answer = {answers!r}.get(name, {{}})
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
sys.exit(answer.get("code", 0))
"""
TOOLS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")
NO_ACCOUNTS = {"code": 1, "err": "Slurm accounting storage is disabled\n"}
DOWN = {"code": 1, "err": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"}


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "log"

    def answers(self, **answers):
        for tool in TOOLS:
            path = self.folder / tool
            path.write_text(FAKE.format(python=sys.executable, log=str(self.log), answers=answers))
            path.chmod(0o755)
        self.log.write_text("")

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def asked(self):
        return [call["argv"][0] for call in self.calls()]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    slurm._no_books.clear()
    yield Cluster(folder)
    slurm._no_books.clear()


def run(tmp_path, native_id, name="run"):
    run_dir = RunDir(tmp_path / name)
    run_dir.create()
    run_dir.native_id.write_text(f"{native_id:<63}\n")
    return run_dir
