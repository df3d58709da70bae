"""node.sh against a stand-in of enroot 4.1.2: which containers it creates, uses and removes, and what it passes on."""

import os
import signal
import subprocess
from dataclasses import replace

import pytest

from echelon.config.decode import Machine, Settings, build_job
from echelon.config.sources import default_layer, flag_layer, merge_layers
from echelon.environments.node_script import node_script
from echelon.job import Script, ScriptKind
from running import wait_for
from standins.images import image_tree, need, squashed, standins

pytestmark = need("/usr/bin/bwrap", "/usr/bin/mksquashfs")

SCRIPT = Script(kind=ScriptKind.FILE, target="train.py")
RUN = "gpt-20260115-101500-7f3a"
REFUSED = 78


class Node:
    """A node with enroot, and the image of a job."""

    def __init__(self, folder):
        self.folder = folder
        self.data = folder / "new" / "data"
        self.words = folder / "words"
        self.notes = folder / "notes"
        self.notes.touch()
        self.environ = {
            **os.environ,
            **standins(folder),
            "HOME": str(folder),
            "ENROOT_DATA_PATH": str(self.data),
            "STANDIN_NOTES": str(self.notes),
        }
        self.environ.pop("NVIDIA_VISIBLE_DEVICES", None)

    def image(self, name="torch.sqsh", **options):
        return squashed(image_tree(self.folder / f"tree-of-{name}", **options), self.folder / name)

    def enroot(self, *args):
        argv = ["enroot", *map(str, args)]
        return subprocess.run(argv, env=self.environ, capture_output=True, text=True, check=True)

    def command(self, *, run=RUN, setting=None, hidden=False, **flags):
        """The command that runs `env` in the container; its output is what the ranks would find in their environment."""
        layers = [default_layer(), flag_layer({"on": "slurm", "env": "enroot", **flags})]
        machine = Machine(cwd=str(self.folder), python="python3", host_python="python3", hosts=(), gpus=0)
        job = replace(build_job(Settings(merge_layers(layers)), SCRIPT, machine), env=setting or {})
        if hidden:
            job = replace(job, enclosure=replace(job.enclosure, container_name=f".{job.enclosure.container_name}"))
        node_sh = self.folder / run / "node.sh"
        node_sh.parent.mkdir(exist_ok=True)
        node_sh.write_text(node_script(job))
        return ["/bin/bash", str(node_sh), str(self.words), "/usr/bin/env"]

    def enter(self, *, env=None, **options):
        argv, environ = self.command(**options), {**self.environ, **(env or {})}
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, cwd=self.folder)

    def kill_while_creating(self, name, **options):
        """Kills all processes of node.sh after it has marked the folder of the container."""
        argv, environ = self.command(container_name=name, **options), {**self.environ, "STANDIN_SLOWLY": "60"}
        with subprocess.Popen(argv, env=environ, cwd=self.folder, start_new_session=True) as begun:
            wait_for(lambda: self.record(name).endswith(" marked\n"), "the mark of the container")
            os.killpg(begun.pid, signal.SIGKILL)

    def record(self, name):
        file = self.data / f".{name}.echelon"
        return file.read_text() if file.exists() else ""

    def entered(self, **options):
        done = self.enter(**options)
        assert done.returncode == 0, done.stderr
        return dict(line.partition("=")[::2] for line in done.stdout.splitlines())

    def refused(self, **options):
        assert self.enter(**options).returncode == REFUSED
        return self.words.read_text()

    def asked(self, verb):
        return [line.split()[1] for line in self.notes.read_text().splitlines() if line.startswith(f"{verb} ")]


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def image(node):
    return str(node.image(GREETING="image"))


@pytest.fixture
def of_the_user(node, image):
    """A container that the user made."""
    node.enroot("create", "-n", "mine", image)
    (node.data / "mine" / "result").write_text("of weeks")
    return node.data / "mine" / "result"


def test_failing_enroot_list_keeps_the_users_container(node, image, of_the_user):
    broken = {"ENROOT_RUNTIME_PATH": "/proc/nowhere"}
    for _ in range(2):
        words = node.refused(image=image, container_name="mine", env=broken)
        assert "mkdir: cannot create directory" in words
        assert "error: enroot list failed, so the containers of this node are unknown" in words
        assert "--set ENROOT_RUNTIME_PATH=DIR" in words
    node.entered(image=image, container_name="mine")
    assert of_the_user.read_text() == "of weeks"
    assert node.asked("remove") == []


def test_failing_enroot_list_does_not_mean_missing(node, of_the_user):
    words = node.refused(container_name="mine", env={"ENROOT_RUNTIME_PATH": "/proc/nowhere"})
    assert "enroot list failed" in words
    assert "this node has no container" not in words
    assert node.entered(container_name="mine")["GREETING"] == "image"


def test_a_container_that_another_process_created_is_kept(node, image, of_the_user):
    """`enroot list` does not show names with a leading dot: as if it was created after the look."""
    (node.data / "mine").rename(node.data / ".mine")
    for _ in range(2):
        assert "[ERROR] File already exists" in node.refused(image=image, container_name="mine", hidden=True)
    assert (node.data / ".mine" / "result").exists()
    assert node.asked("remove") == []


@pytest.mark.parametrize("begun_by", [RUN, "other-20260115-101500-0000"])
def test_incomplete_container_with_our_name_is_created_again(node, image, begun_by):
    node.entered(image=image)
    (made,) = node.asked("create")
    (node.data / f".{made}.echelon").write_text(f"unfinished {begun_by}\n")
    assert node.entered(image=image)["GREETING"] == "image"
    assert node.asked("remove") == [made]
    assert node.asked("create") == [made, made]


def test_incomplete_container_with_chosen_name_is_created_again(node, image):
    node.kill_while_creating("mine", image=image)
    assert node.entered(image=image, container_name="mine")["GREETING"] == "image"
    assert node.asked("remove") == ["mine"]
    assert node.asked("create") == ["mine", "mine"]
    assert not (node.data / "mine" / ".echelon-unfinished").exists()


def test_a_container_made_by_hand_after_a_kill_is_used(node, image):
    node.kill_while_creating("mine", image=image)
    node.enroot("remove", "-f", "mine")
    node.enroot("create", "-n", "mine", image)
    for _ in range(2):
        assert node.entered(image=image, container_name="mine")["GREETING"] == "image"
    assert node.asked("remove") == ["mine"]


def test_a_container_made_by_hand_after_a_failed_create_is_used(node, image):
    broken = node.folder / "broken.sqsh"
    broken.write_text("no squashfs")
    assert "Invalid image format" in node.refused(image=str(broken), container_name="mine")
    assert node.record("mine") == ""
    node.enroot("create", "-n", "mine", image)
    (node.data / "mine" / "result").write_text("of weeks")
    node.entered(image=str(broken), container_name="mine")
    assert (node.data / "mine" / "result").read_text() == "of weeks"


def test_a_container_of_unknown_origin_is_kept(node, image, of_the_user):
    """A kill before `enroot create` has made the folder leaves this record."""
    (node.data / ".mine.echelon").write_text(f"unfinished {RUN}\n")
    words = node.refused(image=image, container_name="mine")
    assert f"mine may be incomplete: the run {RUN} was killed before or while creating it" in words
    assert f"enroot remove mine, on that node, or another --container-name; rm {node.data}/.mine.echelon" in words
    assert of_the_user.read_text() == "of weeks"
    (node.data / ".mine.echelon").unlink()
    assert node.entered(image=image, container_name="mine")["GREETING"] == "image"


def test_incomplete_container_of_another_run_is_kept(node, image, of_the_user):
    """The name is the user's own, and so may be the container by now."""
    (node.data / ".mine.echelon").write_text("unfinished other-20260115-101500-0000 marked\n")
    (node.data / "mine" / ".echelon-unfinished").touch()
    words = node.refused(image=image, container_name="mine")
    assert "mine is incomplete: the run other-20260115-101500-0000 was killed while creating it" in words
    assert "enroot remove mine" in words
    assert of_the_user.exists()


def test_a_failed_create_shows_its_reason_and_leaves_nothing(node):
    tree = image_tree(node.folder / "large")
    (tree / "blob").write_bytes(os.urandom(3_000_000))
    image = str(squashed(tree, node.folder / "large.sqsh"))
    words = node.refused(image=image, setup=("trap '' XFSZ", "ulimit -f 1000"))
    assert "Write on output file failed because File too large" in words
    assert f"error: enroot cannot create a container from {image}" in words
    assert "created" not in words
    assert node.asked("remove") == node.asked("create")
    assert node.enroot("list").stdout.strip() == ""
    assert node.entered(image=image)


def test_data_folder_is_readable_only_by_its_owner(node, image):
    node.entered(image=image)
    assert node.data.stat().st_mode & 0o777 == 0o700
    assert node.data.parent.stat().st_mode & 0o777 == 0o700


def test_path_of_the_image_is_passed_unchanged(node, image):
    assert node.entered(image=image)["PATH"] == "/image-bin:/bin"
    assert node.entered(image=image, env={"ENROOT_LOGIN_SHELL": "yes"})["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_without_gpus_the_gpu_hook_has_nothing_to_do(node):
    image = str(node.image(NVIDIA_VISIBLE_DEVICES="all"))
    assert node.entered(image=image)["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_variables_of_set_reach_the_hooks(node, image):
    done = node.enter(image=image, setting={"NVIDIA_VISIBLE_DEVICES": "all", "GREETING": "it's $HOME"})
    assert "[ERROR] Command not found: nvidia-container-cli" in done.stderr
    told = node.entered(image=image, setting={"NVIDIA_VISIBLE_DEVICES": "void", "GREETING": "it's $HOME"})
    assert told["GREETING"] == "it's $HOME"


def test_variables_of_set_reach_enroot_itself_but_not_path(node, image):
    setting = {"ENROOT_RUNTIME_PATH": str(node.folder / "elsewhere"), "PATH": "/nowhere"}
    node.entered(image=image, setting=setting, env={"ENROOT_RUNTIME_PATH": "/proc/nowhere"})
    assert (node.folder / "elsewhere").is_dir()


def test_a_run_folder_that_enroot_cannot_mount_is_refused(node, image):
    words = node.refused(image=image, run="my runs")
    assert "my runs: its path has a space or a colon" in words
