"""The --container flags that srun is given."""

from pathlib import Path

from echelon.environments.pyxis import container_flags, srun_flags
from echelon.job import Enclosure, Job, Script, ScriptKind
from echelon.node.hosts.slurm import srun_argv

RUN = Path("/home/ada/runs/gpt")
JOB = Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/home/ada", python="python3")


def job(**enclosure):
    return Job(**{**vars(JOB), "environment": "pyxis", "secret_env": ("A_KEY",), "enclosure": Enclosure(**enclosure)})


def test_an_image_with_the_run_and_the_working_directory_in_it():
    assert srun_flags(job(image="/a.sqsh"), RUN, []) == [
        "--container-image=/a.sqsh",
        "--container-mounts=/home/ada:/home/ada,/home/ada/runs/gpt:/home/ada/runs/gpt",
        "--container-workdir=/home/ada",
    ]


def test_everything_that_can_be_asked_for():
    asked = job(
        image="nvcr.io#nvidia/pytorch:24.01", container_name="torch", mounts=("/data:/data:ro", "/x:/y"), workdir="/in",
        writable=True, root=True,
    )  # fmt: skip
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


def test_a_container_of_that_name_needs_no_image():
    assert srun_flags(job(container_name="torch"), RUN, [])[0] == "--container-name=torch"


def test_srun_gets_them_only_for_pyxis_and_before_the_command():
    assert container_flags(JOB, RUN, {}) == ()
    flags = container_flags(job(image="/a.sqsh"), RUN, {"A_KEY": "hush"})
    assert "--container-env=A_KEY" in flags
    argv = srun_argv(job(image="/a.sqsh"), "n1", None, ["/bin/bash", "node.sh"], flags)
    assert argv[-len(flags) - 2 :] == [*flags, "/bin/bash", "node.sh"]
    assert "hush" not in " ".join(argv)


def test_a_secret_that_is_not_set_is_not_named():
    assert not [flag for flag in container_flags(job(image="/a.sqsh"), RUN, {}) if "--container-env" in flag]
