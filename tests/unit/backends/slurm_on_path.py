"""Fake tools of Slurm, first on PATH, that record their arguments."""

import json
import os
import shlex
import sys

import pytest

from echelon.backends.slurm import control
from echelon.run_dir import RunDir

FAKE = """
import json, os, sys
name = sys.argv[1]
with open({log!r}, "a") as log:
    log.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}) + "\\n")
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
        fake = self.folder / "fake.py"
        fake.write_text(FAKE.format(log=str(self.log), answers=answers))
        for tool in TOOLS:
            path = self.folder / tool
            path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, str(fake), tool])} "$@"\n')
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
    control._clusters_without_accounting.clear()
    yield Cluster(folder)
    control._clusters_without_accounting.clear()


def run(tmp_path, native_id, name="run"):
    run_dir = RunDir(tmp_path / name)
    run_dir.create()
    run_dir.native_id.write_text(f"{native_id:<63}\n")
    return run_dir
