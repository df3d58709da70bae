"""Which scheduler is meant when nobody says, and why."""

import pytest

from echelon.config.sources import detect_backend_setting

INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "n[1-2]"}


@pytest.fixture
def login_node(tmp_path):
    (tmp_path / "sbatch").touch(mode=0o755)
    return {"PATH": f"/nonexistent:{tmp_path}"}


def choice(environ, inside=True):
    setting = detect_backend_setting(environ, inside=inside)
    assert setting.key == "on"
    return setting.value, setting.origin


def test_without_slurm_the_backend_is_local(tmp_path):
    assert choice({"PATH": str(tmp_path)}) == ("local", "neither sbatch nor qsub on PATH")
    assert choice({}) == ("local", "neither sbatch nor qsub on PATH")


def test_sbatch_on_path_selects_slurm(login_node):
    assert choice(login_node) == ("slurm", "sbatch is on PATH")


def test_allocation_is_selected_inside_of_one(login_node):
    assert choice({**login_node, **INSIDE}) == ("allocation", "inside Slurm job 12")


def test_submit_inside_an_allocation_selects_slurm(login_node):
    assert choice({**login_node, **INSIDE}, inside=False) == ("slurm", "sbatch is on PATH")


@pytest.mark.parametrize("missing", INSIDE)
def test_incomplete_allocation_variables_are_ignored(login_node, missing):
    environ = {**login_node, **INSIDE}
    del environ[missing]
    assert choice(environ)[0] == "slurm"


UNCONFIGURED = "#!/bin/sh\necho 'scontrol: fatal: Could not establish a configuration source' >&2\nexit 1\n"
DOWN = "#!/bin/sh\necho 'Slurmctld(primary) at ctl is DOWN'\nexit 1\n"


@pytest.fixture
def two(tmp_path):
    """A machine with the tools of both schedulers; each answers as the test wants."""

    def make(scontrol, qstat_code):
        for name in ("sbatch", "qsub"):
            (tmp_path / name).touch(mode=0o755)
        for name, text in (("scontrol", scontrol), ("qstat", f"#!/bin/sh\nexit {qstat_code}\n")):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        return {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    return make


@pytest.mark.parametrize(
    ("scontrol", "qstat_code", "name"),
    [
        (UNCONFIGURED, 0, "pbs"),
        (UNCONFIGURED, 1, "slurm"),  # both fail: the error of sbatch gives the advice
        (DOWN, 0, "slurm"),
        ("#!/bin/sh\n", 0, "slurm"),
    ],
)
def test_an_unconfigured_sbatch_leaves_the_choice_to_pbs(two, scontrol, qstat_code, name):
    assert choice(two(scontrol, qstat_code))[0] == name


LATE = "#!/bin/sh\nexec /bin/sleep 600\n"


@pytest.mark.parametrize(
    ("scontrol", "sbatch", "name"),
    [(None, UNCONFIGURED, "pbs"), (None, "#!/bin/sh\necho slurm 22.05.8\n", "slurm"), (LATE, UNCONFIGURED, "pbs")],
    ids=["no scontrol", "no scontrol, configured", "late scontrol"],
)
def test_sbatch_itself_is_asked_if_scontrol_does_not_answer(two, tmp_path, scontrol, sbatch, name):
    two(scontrol or "", 0)
    if scontrol is None:
        (tmp_path / "scontrol").unlink()
    (tmp_path / "sbatch").write_text(sbatch)
    assert choice({"PATH": str(tmp_path)})[0] == name


def test_why_pbs_was_chosen_beside_an_sbatch(two):
    assert choice(two(UNCONFIGURED, 0)) == ("pbs", "qsub is on PATH; sbatch is too, but has no Slurm configuration")


def test_folder_or_plain_file_is_not_sbatch(tmp_path):
    (tmp_path / "a" / "sbatch").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "sbatch").touch(mode=0o644)
    assert choice({"PATH": f"{tmp_path}/a:{tmp_path}/b"})[0] == "local"
