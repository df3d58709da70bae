"""The chosen environment, and errors for contradictory settings."""

import pytest

from echelon.config.decode import Machine, Settings, build_job
from echelon.config.sources import Setting, default_layer, flag_layer, merge_layers
from echelon.errors import ConfigError
from echelon.job import Script, ScriptKind

SCRIPT = Script(kind=ScriptKind.FILE, target="train.py")
MACHINE = Machine(cwd="/work", python="/usr/bin/python3", host_python="/opt/python")


def job(**flags):
    return build_job(Settings(merge_layers([default_layer(), flag_layer({"on": "local", **flags})])), SCRIPT, MACHINE)


@pytest.mark.parametrize(
    ("flags", "name", "python"),
    [
        ({}, "bare", "/usr/bin/python3"),
        ({"modules": ("cuda",)}, "modules", "/usr/bin/python3"),
        ({"setup": ("true",)}, "setup", "/usr/bin/python3"),
        ({"modules": ("cuda",), "setup": ("true",)}, "modules", "/usr/bin/python3"),
        ({"venv": "env"}, "venv", "/work/env/bin/python"),
        ({"venv": "/opt/env", "modules": ("cuda",)}, "venv", "/opt/env/bin/python"),
        ({"conda": "ml"}, "conda", "python"),
        ({"image": "a.sqsh"}, "enroot", "python3"),
        ({"image": "/a.squashfs"}, "enroot", "python3"),
        ({"image": "a.sif"}, "apptainer", "python3"),
        ({"image": "docker://ubuntu"}, "apptainer", "python3"),
        ({"image": "a.sif", "env": "singularity"}, "singularity", "python3"),
        ({"image": "a.sqsh", "env": "pyxis", "on": "slurm"}, "pyxis", "python3"),
        ({"image": "nvcr.io#nvidia/pytorch", "env": "pyxis", "on": "allocation"}, "pyxis", "python3"),
        ({"container_exec": "bwrap"}, "container", "python3"),
        ({"container_exec": "bwrap", "container_workdir": "/x"}, "container", "python3"),
        ({"env": "enroot", "container_name": "mine"}, "enroot", "python3"),
        ({"image": "a.sif", "python": "/opt/py/bin/python"}, "apptainer", "/opt/py/bin/python"),
        ({"venv": "env", "env": "bare"}, "bare", "/usr/bin/python3"),
        ({"image": "a.sif", "mount": ("/x:/x",), "env": "bare"}, "bare", "/usr/bin/python3"),
    ],
)
def test_settings_imply_the_environment(flags, name, python):
    made = job(**flags)
    assert (made.environment, made.python) == (name, python)
    assert made.host_python == (MACHINE.host_python if made.is_enclosed else None)


@pytest.mark.parametrize(
    ("flags", "what", "origin"),
    [
        ({"venv": "a", "conda": "b"}, "more than one environment", "--venv a; --conda b"),
        ({"venv": "a", "image": "b.sif"}, "more than one environment", "--venv a; --image b.sif"),
        (
            {"image": "b.sif", "container_exec": "bwrap"},
            "more than one environment",
            "--image b.sif; --container-exec bwrap",
        ),
        ({"env": "enroot", "venv": "a", "image": "b.sqsh"}, "more than one environment", "--env enroot; --venv a"),
        (
            {"env": "container", "container_exec": "b", "image": "b.sif"},
            "more than one environment",
            "--env container; --image b.sif",
        ),
        (
            {"env": "enroot", "image": "docker://ubuntu"},
            "enroot cannot use docker://ubuntu directly",
            "--image docker://ubuntu",
        ),
        ({"env": "venv"}, "--env venv needs a directory", "--env venv"),
        ({"env": "enroot"}, "--env enroot needs an image", "--env enroot"),
        ({"env": "modules"}, "--env modules needs a module", "--env modules"),
        ({"mount": ("/a:/b",)}, "--mount has no effect with environment bare", "--mount"),
        (
            {"venv": "a", "container_root": True},
            "--container-root has no effect with environment venv",
            "--container-root",
        ),
        ({"container_exec": "bwrap", "mount": ("/a:/b",)}, "no effect with --container-exec", "--mount"),
        ({"image": "a.sqsh", "env": "pyxis"}, "pyxis is a part of Slurm", "--env pyxis; the scheduler: --on local"),
        (
            {"image": "a.sqsh", "env": "pyxis", "on": "slurm", "modules": ("x",)},
            "--modules has no effect",
            "--modules; --env pyxis",
        ),
        ({"image": "a.sif", "mount": ("/a:b",)}, "mount is '/a:b'", "--mount"),
        ({"image": "a.sif", "mount": ("/a:/b:wild",)}, "mount is '/a:/b:wild'", "--mount"),
        ({"image": "a.sif", "mount": ("/a b:/b",)}, "mount is '/a b:/b'", "--mount"),
        ({"image": "a.sif", "mount": ("/a,c:/b",)}, "mount is '/a,c:/b'", "--mount"),
        ({"image": "a.sif", "mount": (":/b",)}, "mount is ':/b'", "--mount"),
        ({"image": "a.sqsh", "container_name": "a/b"}, "invalid container name", "--container-name a/b"),
    ],
)
def test_contradictions_are_refused_with_their_origins(flags, what, origin):
    with pytest.raises(ConfigError) as caught:
        job(**flags)
    assert what in caught.value.what
    assert caught.value.origin == origin


def test_paths_are_relative_to_the_working_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ada")
    enclosure = job(image="images/a.sif", mount=("data:/data:ro", "/b/../c", "~/x:/x")).enclosure
    assert enclosure.image == "/work/images/a.sif"
    assert enclosure.mounts == ("/work/data:/data:ro", "/c:/b/../c", "/home/ada/x:/x")
    assert job(conda="envs/ml").enclosure.conda == "/work/envs/ml"
    assert job(image="docker://ubuntu").enclosure.image == "docker://ubuntu"


@pytest.mark.parametrize("environment", ["apptainer", "singularity"])
@pytest.mark.parametrize("image", ["sandbox", "ubuntu:22.04", "nvcr.io#nvidia/pytorch", "images/torch"])
def test_apptainer_image_without_scheme_is_a_path(environment, image):
    assert job(image=image, env=environment).enclosure.image == f"/work/{image}"
    assert job(image=image, env="pyxis", on="slurm").enclosure.image == image


@pytest.mark.parametrize(
    "image", ["docker://ubuntu:22.04", "docker-archive://a.tar", "oci-archive:a.tar", "oras://x/y"]
)
def test_apptainer_addresses_are_unchanged(image):
    assert job(image=image, env="apptainer").enclosure.image == image


def test_image_raises_the_default_join_timeout():
    assert job(image="a.sqsh").policies.join_timeout.total_seconds() == 1200
    assert job(image="a.sqsh", join_timeout="90s").policies.join_timeout.total_seconds() == 90
    assert job(venv="a").policies.join_timeout.total_seconds() == 120


def test_working_directory_of_ranks():
    assert job(image="a.sif").inner_cwd == "/work"
    assert job(image="a.sif", container_workdir="/in").inner_cwd == "/in"


def test_project_file_and_flag_can_contradict():
    file = {"venv": Setting(key="venv", value=".venv", origin="echelon.toml:3 (venv = '.venv')")}
    settings = Settings(merge_layers([default_layer(), file, flag_layer({"on": "local", "image": "a.sif"})]))
    with pytest.raises(ConfigError) as caught:
        build_job(settings, SCRIPT, MACHINE)
    assert "echelon.toml:3" in caught.value.origin
    assert "--image a.sif" in caught.value.origin
