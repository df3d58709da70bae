"""Which scheduler is meant when nobody says, and why."""

import pytest

from echelon.config.choice import chosen

INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.fixture
def login_node(tmp_path):
    (tmp_path / "sbatch").touch(mode=0o755)
    return {"PATH": f"/nonexistent:{tmp_path}"}


def choice(environ, inside=True):
    setting = chosen(environ, inside=inside)
    assert setting.key == "on"
    return setting.value, setting.origin


def test_without_slurm_it_is_this_machine(tmp_path):
    assert choice({"PATH": str(tmp_path)}) == ("local", "neither sbatch nor qsub on PATH")
    assert choice({}) == ("local", "neither sbatch nor qsub on PATH")


def test_where_sbatch_is_it_is_slurm(login_node):
    assert choice(login_node) == ("slurm", "sbatch is on PATH")


def test_inside_of_an_allocation_it_is_that_one(login_node):
    assert choice({**login_node, **INSIDE}) == ("allocation", "inside of Slurm job 12")


def test_from_inside_of_one_a_job_of_its_own_can_be_submitted(login_node):
    assert choice({**login_node, **INSIDE}, inside=False) == ("slurm", "sbatch is on PATH")


@pytest.mark.parametrize("missing", INSIDE)
def test_half_an_allocation_is_none(login_node, missing):
    environ = {**login_node, **INSIDE}
    del environ[missing]
    assert choice(environ)[0] == "slurm"


def test_a_folder_or_a_file_that_cannot_be_run_is_no_sbatch(tmp_path):
    (tmp_path / "a" / "sbatch").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "sbatch").touch(mode=0o644)
    assert choice({"PATH": f"{tmp_path}/a:{tmp_path}/b"})[0] == "local"
