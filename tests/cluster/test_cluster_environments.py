"""What ranks run in, on other nodes: the supervisor stays outside, and a node that cannot go there says why."""

import os
import sys
from pathlib import Path

import pytest

from cluster import UID, Cluster
from node import wait_for
from pbs.server import Server
from standins.images import image_tree, need, squashed, standins
from tool import Tool

pytestmark = need("/usr/bin/bwrap", "/usr/bin/mksquashfs", "/usr/share/modules/init/bash")

ADD_UP = """
import os, socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
told = [os.environ.get(name) for name in ("GREETING", "API_TOKEN", "FROM_HERE")]
print(socket.gethostname(), "sum", total.item(), "image", os.path.exists("/etc/image"), *told, flush=True)
dist.destroy_process_group()
"""
BWRAP = "bwrap --dev-bind / / --tmpfs /tmp --bind {run} {run} --bind {cwd} {cwd} --setenv GREETING inside"


@pytest.fixture
def image(echelon):
    return image_in(echelon.folder)


def image_in(folder: Path, **options) -> Path:
    tree = image_tree(folder / "tree", **{"GREETING": "image", "API_TOKEN": "the image's own", **options})
    image = squashed(tree, folder / "torch.sqsh")
    image.chmod(0o644)
    return image


def use_standins(echelon, *, on: str = "slurm") -> None:
    echelon.env |= standins(echelon.cluster.environ()["PATH"]) | {"ECHELON_ON": on, "FROM_HERE": "here"}


def told(result) -> list[str]:
    assert result.returncode == 0, result.stderr + result.stdout
    return sorted(line.partition("] ")[2] for line in result.stdout.splitlines() if " sum " in line)


def on_both(text: str, names=("n1", "n2")) -> list[str]:
    return [f"{host} sum 10.0 image {text}" for host in names for _ in range(2)]


# Slurm


def test_training_in_a_real_container_on_slurm(echelon):
    flags = ("--container-exec", BWRAP, "--python", sys.executable)
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("False inside None None")


def test_training_in_enroot_on_slurm(echelon, image):
    use_standins(echelon)
    flags = ("--image", image, "--set", "API_TOKEN=hush")
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("True image hush here")
    containers = [path for path in (echelon.cluster.home / ".local/share/enroot").iterdir() if path.name[0] != "."]
    assert len(containers) == 1, "one for both nodes, whose homes are one"


def test_apptainer_is_asked_for_gpus_where_the_job_has_some(echelon):
    use_standins(echelon)
    image = squashed(image_tree(echelon.folder / "tree"), echelon.folder / "torch.sif")
    script = echelon.script(
        "train.py", "import os; print(os.environ['STANDIN_FLAGS'], os.environ['CUDA_VISIBLE_DEVICES'])"
    )
    result = echelon("run", "-N", "2", "-g", "2", "--cold", "--image", image, script)
    assert sorted(result.stdout.splitlines()) == [f"[{rank}] --nv 0,1" for rank in range(4)], result.stderr
    result = echelon("run", "--cold", "--procs-per-node", "1", "--image", image, script)
    assert result.stdout == "[0]  \n", result.stderr


def test_training_in_pyxis(echelon, image):
    use_standins(echelon)
    flags = ("--env", "pyxis", "--image", image, "--set", "API_TOKEN=hush", "--setup", "export GREETING=setup")
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("True setup hush here")


def test_a_container_of_pyxis_is_used_again_by_its_name(echelon, image):
    use_standins(echelon)
    script = echelon.script("train.py", ADD_UP)
    flags = ("-N", "2", "-g", "2", "--env", "pyxis", "--container-name", "mine")
    result = echelon("run", *flags, "--image", image, script)
    assert told(result) == on_both("True image the image's own here")
    image.unlink()
    result = echelon("run", *flags, script)
    assert told(result) == on_both("True image the image's own here")
    result = echelon("run", *flags[:-1], "yours", "--restarts", "2", script)
    assert result.returncode == 3
    assert 'pyxis: a container with name "yours" does not exist' in result.stderr


@pytest.mark.parametrize(
    ("launcher", "environment"), [("torchrun", "enroot"), ("srun", "pyxis"), ("srun", "enroot"), ("mpirun", "enroot")]
)
def test_a_launcher_in_a_container(echelon, image, launcher, environment):
    """srun and mpirun start the containers, one for each rank; torchrun is started inside of one."""
    use_standins(echelon)
    flags = ("--launcher", launcher, "--env", environment, "--image", image, "--set", "API_TOKEN=hush")
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("True image hush here")


def test_an_image_without_python_in_pyxis(echelon):
    use_standins(echelon)
    image = image_in(echelon.folder, python=None)
    result = echelon("run", "--env", "pyxis", "--image", image, "--restarts", "2", echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "the environment (pyxis) could not be entered (on n1)" in result.stderr
    assert f"the image {image} has no python3 that could be run" in result.stderr


def test_words_of_pyxis_are_passed_on(echelon, image):
    use_standins(echelon)
    flags = ("--env", "pyxis", "--image", "nvcr.io#nvidia/nope", "--restarts", "2")
    result = echelon("run", *flags, echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "pyxis: failed to import docker image nvcr.io#nvidia/nope" in result.stderr


def test_a_missing_module_on_slurm(echelon):
    result = echelon("run", "-N", "2", "--modules", "nonsense", "--requeues", "2", echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "the environment (modules) could not be entered (on n" in result.stderr
    assert "Unable to locate a modulefile for 'nonsense'" in result.stderr


def test_a_virtual_environment_on_slurm(echelon):
    result = echelon("run", "-N", "2", "-g", "2", "--venv", sys.prefix, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("False None None None")


def test_a_notice_inside_of_a_container_requeues_from_outside(echelon):
    script = echelon.script(
        "train.py",
        "import os, sys, time\n"
        "print('attempt', os.environ['ECHELON_ATTEMPT'], os.environ['GREETING'], flush=True)\n"
        "sys.exit(75 if os.environ['ECHELON_ATTEMPT'] == '0' else 0)\n",
    )
    flags = ("--cold", "--requeues", "1", "--container-exec", BWRAP, "--python", sys.executable)
    result = echelon("run", *flags, script, timeout=140)
    assert result.returncode == 0, result.stderr
    run = echelon.only_run()
    assert [run.rank_log(0, attempt) for attempt in (0, 1)] == [f"attempt {number} inside\n" for number in (0, 1)]


# PBS


@pytest.fixture
def pbs(cluster, echelon):
    use_standins(echelon, on="pbs")
    with Server(cluster) as server:
        echelon.env["PATH"] = f"{server.bin}:{echelon.env['PATH']}"
        yield server


def test_training_in_enroot_on_pbs(echelon, pbs, image):
    """Tasks of PBS get none of our variables: PATH comes by a line of setup, and the rest over the channel."""
    own = standins("/usr/bin:/bin")
    setup = [word for name, value in own.items() for word in ("--setup", f"export {name}={value}")]
    flags = ("--image", image, "--set", "API_TOKEN=hush", *setup)
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("True image hush here")


def test_what_node_sh_sets_counts_on_pbs(echelon, pbs):
    flags = ("--setup", "export GREETING=setup PATH=/own:$PATH")
    script = echelon.script("train.py", "import os; print(os.environ['GREETING'], os.environ['PATH'])")
    result = echelon("run", "-N", "2", "--cold", *flags, script, env={"GREETING": "carried"})
    assert result.returncode == 0, result.stderr
    for line in result.stdout.splitlines():
        assert line.partition("] ")[2].startswith("setup /own:")
        assert str(pbs.bin) in line, "what was sent along is still there, behind it"


def test_a_virtual_environment_on_pbs_and_no_key_beside_what_it_opens(echelon, pbs):
    script = echelon.script(
        "train.py", "import os; print(sorted(n for n in os.environ if n.startswith('ECHELON_SEA')))"
    )
    result = echelon("run", "-N", "2", "--cold", "--venv", sys.prefix, script)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ["[0] []", "[1] []"]
    key = pbs.jobs["0.ctl"].request.variables["ECHELON_SEAL"].encode()
    assert key
    written = [path for path in echelon.only_run().path.rglob("*") if path.is_file()]
    assert {"n1.env", "n2.env"} <= {path.name for path in written}
    assert [path for path in written if key in path.read_bytes()] == []


def test_a_missing_module_on_pbs(echelon, pbs):
    flags = ("--modules", "nonsense", "--restarts", "2", "--requeues", "2")
    result = echelon("run", "-N", "2", "--cold", *flags, echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "the environment (modules) could not be entered (on n" in result.stderr
    assert "Unable to locate a modulefile for 'nonsense'" in result.stderr


def test_a_real_container_on_pbs(echelon, pbs):
    flags = ("--container-exec", BWRAP, "--python", sys.executable, "--set", "API_TOKEN=hush")
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("False inside hush here")


# ssh


@pytest.fixture(scope="module")
def ssh_cluster():
    with Cluster(nodes=0, ssh_hosts=2) as up:
        yield up


@pytest.fixture
def over_ssh(ssh_cluster):
    """Either in a folder of this machine's own, or in one that the hosts see as well."""

    def tool(*, shared: bool) -> Tool:
        folder = ssh_cluster.make_folder(ssh_cluster.scratch if shared else None)
        made = Tool(ssh_cluster, folder)
        made.env |= {"ECHELON_ON": "ssh", "ECHELON_HOSTS": "h1,h2", "FROM_HERE": "here"}
        return made

    yield tool
    wait_for(lambda: not ssh_cluster.leftovers(), "everything to be gone", 10)
    assert ssh_cluster.debris() == {}, "left in the hosts' own temporary folders"


def trained_over_ssh(tool: Tool, *flags) -> list[str]:
    tool.script("train.py", ADD_UP)
    return told(tool("run", "-g", "2", "--snapshot", "--set", "API_TOKEN=hush", *flags, "train.py"))


@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_a_real_container_over_ssh(over_ssh, shared):
    flags = ("--container-exec", BWRAP, "--python", sys.executable)
    assert trained_over_ssh(over_ssh(shared=shared), *flags) == on_both("False inside hush here", ("h1", "h2"))


@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_enroot_over_ssh(over_ssh, ssh_cluster, shared):
    image = image_in(ssh_cluster.make_folder(ssh_cluster.scratch))
    tool = over_ssh(shared=shared)
    setup = [
        word for name, value in standins("/usr/bin:/bin").items() for word in ("--setup", f"export {name}={value}")
    ]
    assert trained_over_ssh(tool, "--image", image, *setup) == on_both("True image hush here", ("h1", "h2"))


def test_a_fatal_word_of_apptainer_over_ssh(over_ssh):
    tool = over_ssh(shared=False)
    tool.script("train.py", ADD_UP)
    setup = ("--setup", f"export PATH={standins('/usr/bin:/bin')['PATH']}")
    flags = ("--image", "docker://nowhere/nothing", "--restarts", "2", *setup)
    result = tool("run", "--snapshot", *flags, "train.py")
    assert result.returncode == 3
    assert "the environment (apptainer) could not be entered (on h" in result.stderr
    assert "what leads into it ended with exit code 255" in result.stderr
    assert "FATAL:   could not open image docker://nowhere/nothing" in result.stderr


def test_a_virtual_environment_over_ssh(over_ssh):
    assert trained_over_ssh(over_ssh(shared=False), "--venv", sys.prefix) == on_both(
        "False None hush here", ("h1", "h2")
    )


def test_a_missing_module_over_ssh(over_ssh):
    tool = over_ssh(shared=False)
    tool.script("train.py", ADD_UP)
    result = tool("run", "--snapshot", "--modules", "nonsense", "--restarts", "2", "train.py")
    assert result.returncode == 3
    assert "the environment (modules) could not be entered (on h" in result.stderr
    assert "the module nonsense cannot be loaded" in result.stderr
    assert "Unable to locate a modulefile for 'nonsense'" in result.stderr


def test_the_user_is_an_ordinary_one(cluster):
    assert int(cluster.run("n1", ["id", "-u"]).stdout) == UID != os.getuid()
