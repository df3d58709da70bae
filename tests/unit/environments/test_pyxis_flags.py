"""The --container flags of srun."""

from dataclasses import replace
from pathlib import Path

import pytest

from echelon.backends.slurm.hosts import srun_argv
from echelon.environments.pyxis import container_flags, is_removed_after_use, runtime_environ, srun_flags
from echelon.job import EnvironmentSpec, Job, Resources, Script, ScriptKind

RUN = Path("/home/ada/runs/gpt")
JOB = Job(
    name="gpt", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/home/ada", python="python3", scheduler="local"
)


def job(**enclosure):
    return Job(
        **{**vars(JOB), "environment": "pyxis", "secret_env": ("A_KEY",), "enclosure": EnvironmentSpec(**enclosure)}
    )


def test_image_mounts_run_and_working_directory():
    assert srun_flags(job(image="/a.sqsh"), RUN, []) == [
        "--container-image=/a.sqsh",
        "--container-mounts=/home/ada:/home/ada,/home/ada/runs/gpt:/home/ada/runs/gpt",
        "--container-workdir=/home/ada",
    ]


def test_all_container_options_become_flags():
    asked = job(
        image="nvcr.io#nvidia/pytorch:24.01",
        container_name="torch",
        mounts=("/data:/data:ro", "/x:/y"),
        workdir="/in",
        writable=True,
        root=True,
    )
    own = "/home/ada:/home/ada,/home/ada/runs/gpt:/home/ada/runs/gpt"
    assert srun_flags(asked, RUN, ["A_KEY", "B_KEY"]) == [
        "--container-image=nvcr.io#nvidia/pytorch:24.01",
        "--container-name=torch",
        f"--container-mounts={own},/data:/data:ro,/x:/y",
        "--container-workdir=/in",
        "--container-env=A_KEY,B_KEY",
        "--container-writable",
        "--container-remap-root",
    ]


def test_named_container_needs_no_image():
    assert srun_flags(job(container_name="torch"), RUN, [])[0] == "--container-name=torch"


def test_srun_gets_flags_only_for_pyxis():
    assert container_flags(JOB, RUN, {}) == ()
    flags = container_flags(job(image="/a.sqsh"), RUN, {"A_KEY": "hush"})
    assert "--container-env=A_KEY,NVIDIA_VISIBLE_DEVICES" in flags
    argv = srun_argv(job(image="/a.sqsh"), "n1", None, ["/bin/bash", "node.sh"], flags)
    assert argv[-len(flags) - 2 :] == [*flags, "/bin/bash", "node.sh"]
    assert "hush" not in " ".join(argv)


def test_unset_secret_is_not_passed():
    assert "--container-env=NVIDIA_VISIBLE_DEVICES" in container_flags(job(image="/a.sqsh"), RUN, {})


def test_set_variables_override_image_and_reach_hooks():
    asked = replace(job(image="/a.sqsh"), env={"GREETING": "hi", "PATH": "/x", "ENROOT_MOUNT_HOME": "y"})
    assert "--container-env=GREETING,NVIDIA_VISIBLE_DEVICES" in container_flags(asked, RUN, {})
    assert runtime_environ(asked, {}) == {
        "GREETING": "hi",
        "ENROOT_MOUNT_HOME": "y",
        "ENROOT_LOGIN_SHELL": "no",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


@pytest.mark.parametrize(
    ("gpus", "environ", "devices"),
    [(0, {}, "void"), (0, {"NVIDIA_VISIBLE_DEVICES": "none"}, None), (2, {}, None)],
)
def test_job_without_gpus_disables_the_gpu_hook(gpus, environ, devices):
    asked = replace(job(image="/a.sqsh"), resources=Resources(gpus_per_node=gpus))
    assert runtime_environ(asked, environ).get("NVIDIA_VISIBLE_DEVICES") == devices


def test_users_login_shell_setting_is_kept():
    assert "ENROOT_LOGIN_SHELL" not in runtime_environ(job(image="/a.sqsh"), {"ENROOT_LOGIN_SHELL": "yes"})
    assert runtime_environ(JOB, {}) == {}


@pytest.mark.parametrize(("name", "removed"), [(None, True), ("mine", False)])
def test_only_a_container_without_a_name_is_removed(name, removed):
    assert is_removed_after_use(job(image="/a.sqsh", container_name=name)) is removed
    assert not is_removed_after_use(JOB)
