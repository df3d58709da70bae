"""node.sh on nodes with GPUs of both vendors, simulated by files in /dev, and on a node with a missing mount."""

import os
import subprocess
from dataclasses import replace

import pytest
from test_environments import refused

from echelon.config.decode import Machine, Settings, build_job
from echelon.config.sources import default_layer, flag_layer, merge_layers
from echelon.environments.node_script import node_script
from echelon.job import Resources, Script, ScriptKind
from standins.images import image_tree, need, squashed, standins

pytestmark = need("/usr/bin/bwrap", "/usr/bin/mksquashfs")

SCRIPT = Script(kind=ScriptKind.FILE, target="train.py")
AMD, NVIDIA = "/dev/kfd", "/dev/nvidiactl"


@pytest.fixture
def entered(tmp_path):
    """The variables of a command that node.sh has taken into the image, on a node with these devices."""

    def run(ending, devices, *, gpus=2, env=None, **image_variables):
        image = squashed(image_tree(tmp_path / "tree", **image_variables), tmp_path / f"torch.{ending}")
        layers = [default_layer(), flag_layer({"on": "slurm", "image": str(image)})]
        machine = Machine(cwd=str(tmp_path), python="python3", host_python="python3", hosts=(), gpus=0)
        job = build_job(Settings(merge_layers(layers)), SCRIPT, machine)
        node_sh = tmp_path / "node.sh"
        node_sh.write_text(node_script(replace(job, resources=Resources(gpus_per_node=gpus))))
        rights = ["--cap-add", "ALL"] if os.geteuid() == 0 else []  # a user's bwrap in a bwrap must have none
        node = ["bwrap", *rights, "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        node += [word for device in devices for word in ("--dev-bind", "/dev/null", device)]
        if NVIDIA in devices:
            node += ["--ro-bind", "/bin/true", "/bin/nvidia-container-cli"]
        argv = [*node, "/bin/bash", str(node_sh), str(tmp_path / "words"), "/usr/bin/env"]
        environ = {
            **os.environ,
            **standins(tmp_path),
            "HOME": str(tmp_path),
            "ENROOT_DATA_PATH": str(tmp_path / "data"),
        }
        done = subprocess.run(
            argv, env=environ | (env or {}), capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return dict(line.partition("=")[::2] for line in done.stdout.splitlines())

    return run


@pytest.mark.parametrize(
    ("devices", "gpus", "flag"),
    [
        ([AMD], 2, "--rocm"),
        ([NVIDIA], 2, "--nv"),
        ([AMD, NVIDIA], 2, "--nv"),
        ([], 2, "--nv"),  # which is a warning of apptainer's
        ([AMD], 0, ""),
        ([NVIDIA], 0, ""),
    ],
)
def test_apptainer_gets_the_gpus_of_the_node(entered, devices, gpus, flag):
    assert entered("sif", devices, gpus=gpus)["STANDIN_FLAGS"] == flag


def gpu_variables(environ):
    return environ.get("NVIDIA_VISIBLE_DEVICES"), environ.get("NVIDIA_DRIVER_CAPABILITIES")


@pytest.mark.parametrize(
    ("devices", "gpus", "seen"),
    [
        ([NVIDIA], 2, ("all", "compute,utility")),
        ([NVIDIA], 0, ("void", None)),
        ([AMD], 2, ("void", None)),
        ([], 2, ("void", None)),
    ],
)
def test_enroot_shows_gpus_to_an_image_without_gpu_variables(entered, devices, gpus, seen):
    assert gpu_variables(entered("sqsh", devices, gpus=gpus)) == seen


def test_gpu_variables_of_the_image_are_kept(entered):
    environ = entered("sqsh", [NVIDIA], NVIDIA_VISIBLE_DEVICES="0")
    assert gpu_variables(environ) == ("0", "compute,utility")


def test_gpu_variables_of_the_user_override_the_image(entered):
    environ = entered("sqsh", [NVIDIA], env={"NVIDIA_VISIBLE_DEVICES": "3"}, NVIDIA_DRIVER_CAPABILITIES="all")
    assert gpu_variables(environ) == ("3", "all")


@pytest.mark.parametrize("ending", ["sqsh", "sif"])
def test_mount_source_missing_on_the_node_is_reported(echelon, tmp_path, ending):
    echelon.env |= {**standins(echelon.folder), "ENROOT_DATA_PATH": str(echelon.folder / "data")}
    image = squashed(image_tree(tmp_path / "tree"), tmp_path / f"torch.{ending}")
    samples = echelon.folder / "samples"
    samples.mkdir()
    said = refused(echelon, "--image", image, "--mount", "samples:/samples", "--setup", f"rm -rf {samples}")
    assert f"this node has no {samples} to mount" in said
    assert "another --mount" in said
