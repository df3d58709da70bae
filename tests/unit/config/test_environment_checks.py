"""What is known to be missing before anything is submitted."""

from pathlib import Path

import pytest

from echelon.config.environment import check_environment, is_local_disk_name
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.job import EnvironmentSpec, Job, Script, ScriptKind

ORIGINS = {"image": "--image X", "mount": "echelon.toml:3", "venv": "ECHELON_VENV=x"}


def job(environment, scheduler="slurm", cwd="/work", **enclosure):
    script = Script(kind=ScriptKind.FILE, target="x.py")
    return Job(
        name="gpt",
        script=script,
        cwd=cwd,
        python="python3",
        scheduler=scheduler,
        environment=environment,
        enclosure=EnvironmentSpec(**enclosure),
    )


def check(made, run_path=Path("/work/runs/gpt"), here=False):
    return check_environment(made, ORIGINS, run_path, here=here)


@pytest.mark.parametrize(
    ("made", "what", "origin"),
    [
        (job("enroot", image="/usr/nope.sqsh"), "no image at /usr/nope.sqsh", "--image X"),
        (job("apptainer", image="/usr/nope"), "no image at /usr/nope", "--image X"),
        (
            job("enroot", container_name="x", mounts=("/usr/nope:/x",)),
            "no folder to mount at /usr/nope",
            "echelon.toml:3",
        ),
        (job("venv", venv="/usr/nope"), "no virtual environment at /usr/nope/bin/python", "ECHELON_VENV=x"),
    ],
)
def test_missing_file_is_refused_with_origin_and_hint(made, what, origin):
    with pytest.raises(EnvironmentProblem) as caught:
        check(made)
    assert (caught.value.what, caught.value.origin) == (what, origin)
    assert caught.value.hint


def test_missing_path_on_a_node_disk_is_a_warning():
    made = job("enroot", image="/nodes-own-disk/a.sqsh")
    assert check(made) == ["no image at /nodes-own-disk/a.sqsh on this machine; the nodes must have one there"]
    with pytest.raises(EnvironmentProblem):
        check(made, here=True)


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm", "/run/user/1000"])
def test_missing_path_in_a_node_local_folder_is_a_warning(folder):
    made = job("apptainer", image=f"{folder}/nope.sif", mounts=(f"{folder}/nope:/x",))
    image, mount = check(made)
    assert image == f"no image at {folder}/nope.sif on this machine; the nodes must have one there"
    assert mount.startswith(f"no folder to mount at {folder}/nope ")
    with pytest.raises(EnvironmentProblem):
        check(made, here=True)


def test_node_local_folders_are_recognized():
    assert all(map(is_local_disk_name, ("tmp", "scratch", "local", "localscratch", "local_disk")))
    assert not any(map(is_local_disk_name, ("home", "runs", "variables", "tmpl", "data", "g")))


def test_ssh_run_checks_no_local_path():
    assert check(job("enroot", scheduler="ssh", image="/tmp/nope.sqsh"), here=True) == []


@pytest.mark.parametrize("image", ["docker://pytorch/pytorch", "nvcr.io#nvidia/pytorch:24.01-py3", "ubuntu:22.04"])
def test_image_address_is_not_checked(image):
    assert check(job("pyxis", image=image)) == []


def test_existing_files_are_accepted(tmp_path):
    (tmp_path / "a.sqsh").write_bytes(b"hsqs and more")
    assert check(job("enroot", image=str(tmp_path / "a.sqsh"), mounts=(f"{tmp_path}:/x:ro",)), here=True) == []


def test_file_without_squashfs_is_not_an_enroot_image(tmp_path):
    (tmp_path / "a.sqsh").write_bytes(b"PK\3\4")
    with pytest.raises(EnvironmentProblem, match="is not an enroot image"):
        check(job("enroot", image=str(tmp_path / "a.sqsh")))


@pytest.mark.parametrize("environment", ["enroot", "pyxis", "apptainer", "singularity"])
@pytest.mark.parametrize("path", ["/my runs/gpt", "/a:b/gpt", "/a,b/gpt"])
def test_unmountable_path_is_refused(environment, path):
    with pytest.raises(ConfigError, match="cannot be mounted"):
        check(job(environment, container_name="x"), Path(path))
    with pytest.raises(ConfigError, match="cannot be mounted"):
        check(job(environment, container_name="x", cwd=path))


def test_other_environments_mount_nothing(tmp_path):
    assert check(job("setup", cwd="/my folder"), Path("/my runs/gpt")) == []
    assert check(job("container", cwd="/my folder", prefix=("bwrap",)), Path("/my runs/gpt")) == []
