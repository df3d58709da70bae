"""Cancelling a job of Slurm, and the one process that is told of it first."""

import subprocess
import sys

import pytest
from slurm_on_path import NO_ACCOUNTS, run

from echelon.errors import SchedulerError
from echelon.schedulers import slurm


def test_a_living_job_is_cancelled(cluster, tmp_path):
    cluster.answers(squeue={"out": "7_3|PENDING|N/A|Priority\n"})
    assert slurm.cancel(run(tmp_path, "7_3"))
    assert cluster.calls()[-1]["argv"] == ["scancel", "7_3"]


def test_a_supervisor_that_lives_is_told_alone_unless_it_was_told_before(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|RUNNING|N/A|None\n"})
    run_dir = run(tmp_path, "7")
    hold = "import sys, time; from echelon.node import lease; from pathlib import Path; lease.take(Path(sys.argv[1])); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hold, str(run_dir.lease)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"1\n"
        assert slurm.cancel(run_dir)
        assert cluster.calls()[-1]["argv"] == ["scancel", "--batch", "--signal=TERM", "7"]
        assert slurm.cancel(run_dir, again=True)
        assert cluster.calls()[-1]["argv"] == ["scancel", "7"]
        cluster.answers(squeue={"out": "7|PENDING|N/A|BeginTime\n"})
        assert slurm.cancel(run_dir)
        assert cluster.calls()[-1]["argv"] == ["scancel", "7"]
        holder.kill()


def test_a_job_that_has_ended_is_not(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|COMPLETED|N/A|None\n"}, sacct=NO_ACCOUNTS)
    assert not slurm.cancel(run(tmp_path, "7"))
    assert "scancel" not in cluster.asked()


def test_a_cancel_that_slurm_refuses_is_said(cluster, tmp_path):
    cluster.answers(
        squeue={"out": "7|RUNNING|N/A|None\n"}, scancel={"code": 1, "err": "scancel: error: Access/permission denied"}
    )
    with pytest.raises(SchedulerError, match="did not cancel") as caught:
        slurm.cancel(run(tmp_path, "7"))
    assert "permission denied" in caught.value.why
