"""Cancels Slurm jobs; a live supervisor gets the first signal alone."""

import subprocess
import sys

import pytest
from slurm_on_path import NO_ACCOUNTS, run

from echelon.backends.slurm import control
from echelon.errors import SchedulerError


def test_running_job_is_cancelled(cluster, tmp_path):
    cluster.answers(squeue={"out": "7_3|PENDING|N/A|Priority\n"})
    assert control.cancel(run(tmp_path, "7_3"))
    assert cluster.calls()[-1]["argv"] == ["scancel", "7_3"]


def test_first_cancel_signals_only_the_live_supervisor(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|RUNNING|N/A|None\n"})
    run_dir = run(tmp_path, "7")
    hold = "import sys, time; from echelon import lease; from pathlib import Path; lease.acquire(Path(sys.argv[1])); print(1, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", hold, str(run_dir.lease)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"1\n"
        assert control.cancel(run_dir)
        assert cluster.calls()[-1]["argv"] == ["scancel", "--batch", "--signal=TERM", "7"]
        assert control.cancel(run_dir, force=True)
        assert cluster.calls()[-1]["argv"] == ["scancel", "7"]
        cluster.answers(squeue={"out": "7|PENDING|N/A|BeginTime\n"})
        assert control.cancel(run_dir)
        assert cluster.calls()[-1]["argv"] == ["scancel", "7"]
        holder.kill()


def test_ended_job_is_not_cancelled(cluster, tmp_path):
    cluster.answers(squeue={"out": "7|COMPLETED|N/A|None\n"}, sacct=NO_ACCOUNTS)
    assert not control.cancel(run(tmp_path, "7"))
    assert "scancel" not in cluster.asked()


def test_refused_cancel_is_an_error(cluster, tmp_path):
    cluster.answers(
        squeue={"out": "7|RUNNING|N/A|None\n"}, scancel={"code": 1, "err": "scancel: error: Access/permission denied"}
    )
    with pytest.raises(SchedulerError, match="did not cancel") as caught:
        control.cancel(run(tmp_path, "7"))
    assert "permission denied" in caught.value.why


def test_exit_code_229_is_a_delivered_signal(cluster, tmp_path):
    cluster.answers(squeue={"out": "7_0|RUNNING|N/A|None\n"}, scancel={"code": 229})
    assert control.cancel(run(tmp_path, "7_0"))
