"""A backend outside the package: one complete file, registered by one line."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from local_tool import Tool
from running import wait_for

HERE = Path(__file__).parent
REGISTERED = """
from echelon.backends import REGISTRY
REGISTRY["spool"] = "spool"
from echelon.__main__ import main
main()
"""
WAIT = ("--", "bash", "-c", "echo waiting; sleep 1000")
REQUEUE_ONCE = ("--", "bash", "-c", "echo attempt $ECHELON_ATTEMPT of $SPOOL_JOB; exit $((ECHELON_ATTEMPT ? 0 : 75))")


@pytest.fixture
def spool(echelon, monkeypatch):
    """`echelon` with that backend, on a machine that has no scheduler."""
    programs = echelon.folder / "bin"
    programs.mkdir()
    for name in ("bash", "sleep"):
        (programs / name).symlink_to(shutil.which(name))
    monkeypatch.setattr(Tool, "argv", lambda _, *args: [sys.executable, "-c", REGISTERED, *map(str, args)])
    (echelon.folder / "spool").mkdir()
    path = {"PYTHONPATH": os.pathsep.join((str(HERE), *sys.path)), "PATH": str(programs)}
    echelon.env = {**echelon.env, **path, "SPOOL_DIR": str(echelon.folder / "spool")}
    del echelon.env["ECHELON_ON"]
    return echelon


def test_a_backend_is_one_small_file():
    assert len((HERE / "spool.py").read_text().splitlines()) <= 150


def test_the_backend_is_detected_and_explained(spool):
    explained = spool("render", "--explain", "--spool", "quiet", *WAIT)
    rows = [line.split(maxsplit=2) for line in explained.stdout.splitlines()]
    assert ["on", "spool", f"SPOOL_DIR={spool.folder}/spool"] in rows, explained.stderr
    assert ["account", "anyone", "spool's default"] in rows
    assert ["spool", "quiet", "--spool"] in rows


def test_its_own_options_are_in_the_help_and_in_the_script(spool):
    assert "Any other option of spool; repeatable." in spool("run", "--help").stdout
    assert "# bash: for ada, with {'quiet': ''}" in spool("render", "-A", "ada", "--spool", "quiet", *WAIT).stdout
    refused = spool("render", "--spool", "Not_A_Word", *WAIT)
    assert "use a word, for example --spool quiet" in refused.stderr


def test_settings_that_it_cannot_use_are_refused(spool):
    refused = spool("render", "--on", "spool", "--launcher", "srun", *WAIT)
    assert "launcher srun does not work on spool" in refused.stderr
    refused = spool("render", "--hosts", "n1", *WAIT)
    assert "--hosts has no effect with backend spool" in refused.stderr
    assert "only ssh can use it" in refused.stderr


def test_a_plain_script_is_refused(spool):
    refused = spool("render", "--plain", *WAIT)
    assert refused.returncode == 2
    assert "--plain does not support scheduler spool" in refused.stderr


def test_its_refusal_is_shown(spool):
    refused = spool("run", "--on", "spool", *WAIT, env={"SPOOL_DIR": ""})
    assert refused.returncode == 3
    assert "SPOOL_DIR is not set" in refused.stderr


def test_a_run_is_followed_over_a_requeue_to_its_end(spool):
    followed = spool("run", "-N", "2", "--requeues", "1", *REQUEUE_ONCE)
    assert followed.returncode == 0, followed.stderr
    run = spool.only_run()
    jobs = {path.name for path in (spool.folder / "spool").iterdir()}
    first, second = (run.rank_log(1, attempt).split()[-1] for attempt in (0, 1))
    assert {first, second} == jobs
    assert run.path.joinpath("native_id").read_text().strip() == second
    assert f"Spool job {first}, 2 nodes x 1 rank" in followed.stderr
    assert f"[1] attempt 1 of {second}" in followed.stdout


def test_a_submitted_run_is_listed_and_cancelled(spool):
    run = spool.submit("-N", "2", *WAIT)
    wait_for(lambda: "waiting" in run.rank_log(1), "rank 1")
    assert (run.status()["scheduler"], run.status()["native"]) == ("spool", "spooled")
    [row] = json.loads(spool("ls", "--json").stdout)
    assert (row["run_id"], row["state"]) == (run.id, "RUNNING")
    assert spool("cancel", run.id).returncode == 0
    assert run.status()["state"] == "CANCELLED"
    assert spool("logs", run.id).stdout.count("waiting\n") == 2
