"""The real apptainer that tools/apptainer_tree.py unpacked, with images that the tests make."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
from test_environments import ALL_REDUCE, FACTS, facts_of, refused

from cache import cache
from echelon.config.decode import Machine, Settings, build_job
from echelon.config.sources import default_layer, flag_layer, merge_layers
from echelon.environments.node_script import node_script
from echelon.job import Resources, Script, ScriptKind
from standins.images import PROJECT, image_tree, need, python_folders

APPTAINER = cache() / "apptainer-sid" / "bin" / "apptainer"
pytestmark = need(str(APPTAINER), "/usr/bin/mksquashfs")


@pytest.fixture
def apptainer(echelon):
    """Puts apptainer on PATH. Programs come from the machine: an image with torch would have gigabytes."""
    folders = [folder for folder in (*python_folders(), PROJECT) if not folder.is_relative_to("/usr")]
    echelon.env |= {
        "PATH": f"{APPTAINER.parent}:{echelon.env['PATH']}",
        "APPTAINER_BIND": ",".join(map(str, ("/usr", *folders))),
    }


@pytest.fixture
def tree(tmp_path):
    return with_system(image_tree(tmp_path / "tree"), GREETING="from the image")


def with_system(tree, **variables):
    """As in an image that apptainer built: programs in /usr, and a script with the image's variables."""
    (tree / "usr").mkdir()
    for name in ("bin", "sbin", "lib", "lib64"):
        (tree / name).symlink_to(f"usr/{name}")
    script = tree / ".singularity.d" / "env" / "90-environment.sh"
    script.parent.mkdir(parents=True)
    variables = {"PATH": "/image-bin:/usr/bin", **variables}
    script.write_text("".join(f"export {name}='{value}'\n" for name, value in variables.items()))
    return tree


@pytest.fixture
def sif(apptainer, tree, tmp_path, echelon):
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("apptainer mounts a .sif file through /dev/fuse, which this user cannot open")
    image = tmp_path / "torch.sif"
    subprocess.run([APPTAINER, "--quiet", "build", image, tree], check=True, capture_output=True, env=echelon.env)
    return image


@pytest.fixture
def facts(echelon):
    return partial(facts_of, echelon)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_training_in_apptainer(echelon, sif, tree, kind):
    image = ("--image", sif) if kind == "file" else ("--image", tree, "--env", "apptainer")
    result = echelon("run", "-N", "2", "-g", "2", *image, echelon.script("train.py", ALL_REDUCE))
    assert result.returncode == 0, result.stderr + result.stdout
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] sum 6.0 of 4 in True" for rank in range(4)]


def test_apptainer_uses_the_given_mount_and_folder(facts, sif, echelon):
    (echelon.folder / "samples").mkdir()
    (echelon.folder / "samples" / "facts.py").write_text(FACTS)
    flags = ("--image", sif, "--mount", "samples:/mnt/samples:ro", "--container-workdir", "/mnt/samples")
    told = facts(*flags, args=["/mnt/samples"], env={"FROM_HERE": "here", "CONDA_PREFIX": "/opt/conda"})
    assert (told["cwd"], told["seen"], told["image"]) == ("/mnt/samples", ["facts.py"], True)
    assert (told["root"], told["FROM_HERE"], told["CONDA_PREFIX"]) == ("read-only", "here", "/opt/conda")
    assert told["GREETING"] == "from the image"


def test_a_folder_is_an_image_of_apptainer_by_its_name(facts, apptainer, echelon):
    with_system(image_tree(echelon.folder / "sandbox"))
    assert facts("--env", "apptainer", "--image", "sandbox")["image"]
    assert f"no image at {echelon.folder}/sandbag" in refused(echelon, "--env", "apptainer", "--image", "sandbag")


def test_a_writable_container_and_variables_of_set(facts, sif):
    """APPTAINERENV_NAME sets the variable NAME in the container."""
    told = facts("--image", sif, "--container-writable", "--set", "APPTAINERENV_QUOTED=told", "--set", "GREETING=set")
    assert (told["root"], told["QUOTED"], told["GREETING"]) == ("writable", "told", "set")


def test_a_failing_bind_shows_the_error_of_apptainer(echelon, sif):
    """A target that is a file cannot become a folder."""
    said = refused(echelon, "--image", sif, "--mount", "/usr:/etc/image")
    assert "the command that enters it failed with exit code 255" in said
    assert "FATAL:   container creation failed: " in said


def test_a_fatal_error_of_apptainer_ends_the_run_at_once(echelon, apptainer):
    """It exits with 255 for every error. No program listens on that port."""
    said = refused(echelon, "--image", "docker://localhost:1/nothing")
    assert "the environment (apptainer) could not be entered" in said
    assert "the command that enters it failed with exit code 255" in said
    assert "FATAL: " in said


def test_an_image_without_python_is_reported(echelon, apptainer, tmp_path):
    image = with_system(image_tree(tmp_path / "empty", python=None), PATH="/image-bin")
    said = refused(echelon, "--image", image, "--env", "apptainer")
    assert f"cannot run python3 in the image {image}" in said


def test_a_node_without_gpus_gets_only_remarks_of_nv(echelon, sif, tmp_path):
    layers = [default_layer(), flag_layer({"on": "slurm", "image": str(sif)})]
    machine = Machine(cwd=str(tmp_path), python="python3", host_python="python3", hosts=(), gpus=0)
    job = build_job(Settings(merge_layers(layers)), Script(kind=ScriptKind.FILE, target="train.py"), machine)
    node_sh = tmp_path / "node.sh"
    node_sh.write_text(node_script(replace(job, resources=Resources(gpus_per_node=2))))
    argv = ["/bin/bash", str(node_sh), str(tmp_path / "words"), "/usr/bin/cat", "/etc/image"]
    done = subprocess.run(argv, env=os.environ | echelon.env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "this is the image\n"), done.stderr


def test_node_without_apptainer_and_singularity_is_reported(echelon, tmp_path):
    sif = tmp_path / "torch.sif"
    sif.touch()
    assert "this node has neither apptainer nor singularity" in refused(echelon, "--image", sif)
    assert "this node has neither singularity nor apptainer" in refused(echelon, "--image", sif, "--env", "singularity")


def test_the_ranks_python_is_the_images(echelon, sif):
    job = json.loads(echelon("render", "--json", "--image", sif, echelon.script("x.py", "")).stdout)["job"]
    assert (job["python"], job["host_python"]) == ("python3", sys.executable)
