"""Handing a job to sbatch, and what is said when it refuses."""

import os

import pytest
from slurm_on_path import run

from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.schedulers import slurm


def test_the_script_is_submitted_and_its_id_read(cluster, tmp_path):
    cluster.answers(sbatch={"out": "1234\n"})
    run_dir = run(tmp_path, "")
    assert slurm.submit(run_dir, dict(os.environ)) == "1234"
    [call] = cluster.calls()
    assert call["argv"] == ["sbatch", "--parsable", str(run_dir.job_script)]


def test_nothing_of_an_outer_job_reaches_sbatch_and_everything_else_does(cluster, tmp_path):
    cluster.answers(sbatch={"out": "1\n"})
    leaked = {
        "SLURM_JOB_ID": "9", "SLURM_NNODES": "4", "SLURMD_NODENAME": "n1", "SBATCH_PARTITION": "x", "SRUN_DEBUG": "1",
        "PMI_RANK": "0", "PMIX_RANK": "0", "PMI2_X": "1", "SLURM_EXPORT_ENV": "NONE", "OMPI_COMM_WORLD_RANK": "1",
    }  # fmt: skip
    kept = {
        "SLURM_CONF": "/etc/slurm/slurm.conf", "SLURM_CLUSTERS": "far", "SLURM_JWT": "x", "HF_TOKEN": "a,b c",
        "LANG": "de_DE.UTF-8", "PMIRROR": "1", "ODD": "a,b='c' \"$d\"\nnext line",
    }  # fmt: skip
    slurm.submit(run(tmp_path, ""), {**os.environ, **leaked, **kept})
    environ = cluster.calls()[0]["env"]
    assert not set(leaked) & set(environ)
    assert {name: environ[name] for name in kept} == kept
    assert "LC_ALL" not in environ, "the job would inherit it"


def test_a_refusal_is_told_in_sbatchs_own_words(cluster, tmp_path):
    words = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed"
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError, match="Slurm refused the job") as caught:
        slurm.submit(run(tmp_path, ""), dict(os.environ))
    assert caught.value.why == words
    assert caught.value.origin.startswith("sbatch --parsable ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sbatch: error: invalid partition specified: nope", "sinfo"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "--cpu"),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", "--account"),
        ("sbatch: fatal: Could not establish a configuration source", "--on local"),
    ],
)
def test_a_refusal_that_we_know_comes_with_what_to_try(cluster, tmp_path, words, hint):
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError) as caught:
        slurm.submit(run(tmp_path, ""), dict(os.environ))
    assert hint in caught.value.hint


@pytest.mark.parametrize("out", ["", "Submitted batch job 12\nthank you", "no id"])
def test_an_answer_without_an_id_is_nonsense(cluster, tmp_path, out):
    cluster.answers(sbatch={"out": out})
    with pytest.raises(SchedulerError, match="named no job"):
        slurm.submit(run(tmp_path, ""), dict(os.environ))


def test_a_controller_that_is_down_may_be_back_later(cluster, tmp_path):
    cluster.answers(
        sbatch={
            "code": 1,
            "err": "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        }
    )
    with pytest.raises(SchedulerUnreachable, match="Slurm does not answer") as caught:
        slurm.submit(run(tmp_path, ""), dict(os.environ))
    assert "connect failure" in caught.value.why


def test_a_tool_that_is_not_there_is_said_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="cannot run sbatch"):
        slurm.submit(run(tmp_path, ""), dict(os.environ))
