"""Submits jobs with sbatch, and its errors."""

import os

import pytest
from slurm_on_path import run

from echelon.backends.slurm import control
from echelon.errors import SchedulerError, SchedulerUnreachable


def test_submit_returns_the_job_id(cluster, tmp_path):
    cluster.answers(sbatch={"out": "1234\n"})
    run_dir = run(tmp_path, "")
    assert control.submit(run_dir, dict(os.environ)) == "1234"
    [call] = cluster.calls()
    assert call["argv"] == ["sbatch", "--parsable", str(run_dir.job_script)]


def test_sbatch_gets_no_variable_of_the_surrounding_job(cluster, tmp_path):
    cluster.answers(sbatch={"out": "1\n"})
    leaked = {
        "SLURM_JOB_ID": "9",
        "SLURM_NNODES": "4",
        "SLURMD_NODENAME": "n1",
        "SBATCH_PARTITION": "x",
        "SRUN_DEBUG": "1",
        "PMI_RANK": "0",
        "PMIX_RANK": "0",
        "PMI2_X": "1",
        "SLURM_EXPORT_ENV": "NONE",
        "OMPI_COMM_WORLD_RANK": "1",
    }
    kept = {
        "SLURM_CONF": "/etc/slurm/slurm.conf",
        "SLURM_CLUSTERS": "far",
        "SLURM_JWT": "x",
        "HF_TOKEN": "a,b c",
        "LANG": "de_DE.UTF-8",
        "PMIRROR": "1",
        "ODD": "a,b='c' \"$d\"\nnext line",
    }
    control.submit(run(tmp_path, ""), {**os.environ, **leaked, **kept})
    environ = cluster.calls()[0]["env"]
    assert not set(leaked) & set(environ)
    assert {name: environ[name] for name in kept} == kept
    assert "LC_ALL" not in environ, "the job would inherit it"


def test_refusal_has_the_message_of_sbatch(cluster, tmp_path):
    words = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed"
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError, match="Slurm refused the job") as caught:
        control.submit(run(tmp_path, ""), dict(os.environ))
    assert caught.value.why == words
    assert caught.value.origin.startswith("sbatch --parsable ")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sbatch: error: invalid partition specified: nope", "sinfo"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "--cpu"),
        (
            (
                "sbatch: error: Memory specification can not be satisfied\n"
                "sbatch: error: Batch job submission failed: Requested node configuration is not available"
            ),
            "request less with --mem",
        ),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination", "--account"),
    ],
)
def test_known_refusal_has_a_hint(cluster, tmp_path, words, hint):
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError) as caught:
        control.submit(run(tmp_path, ""), dict(os.environ))
    assert hint in caught.value.hint


@pytest.mark.parametrize("out", ["", "Submitted batch job 12\nthank you", "no id"])
def test_output_without_job_id_is_an_error(cluster, tmp_path, out):
    cluster.answers(sbatch={"out": out})
    with pytest.raises(SchedulerError, match="printed no valid job id"):
        control.submit(run(tmp_path, ""), dict(os.environ))


def test_unreachable_controller_is_a_temporary_error(cluster, tmp_path):
    cluster.answers(
        sbatch={
            "code": 1,
            "err": "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        }
    )
    with pytest.raises(SchedulerUnreachable, match="Slurm does not answer") as caught:
        control.submit(run(tmp_path, ""), dict(os.environ))
    assert "connect failure" in caught.value.why


def test_missing_tool_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="cannot run sbatch"):
        control.submit(run(tmp_path, ""), dict(os.environ))


def test_an_unconfigured_sbatch_is_reported(cluster, tmp_path):
    words = "sbatch: fatal: Could not establish a configuration source"
    cluster.answers(sbatch={"code": 1, "err": words})
    with pytest.raises(SchedulerError, match="sbatch is installed, but no Slurm answers") as caught:
        control.submit(run(tmp_path, ""), dict(os.environ))
    assert caught.value.why == words
    assert caught.value.hint.startswith("--on local")
