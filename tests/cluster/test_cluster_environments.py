"""Environments on other nodes. The supervisor runs outside of them; a node that cannot enter one reports the reason."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from cluster import UID, Cluster
from node import wait_for
from pbs.server import Server
from standins.images import bwrap_exec, image_tree, need, squashed, standins
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
BWRAP = bwrap_exec("/tmp")


@pytest.fixture
def image(echelon):
    return image_in(echelon.folder)


def image_in(folder: Path, **options) -> Path:
    tree = image_tree(folder / "tree", **{"GREETING": "image", "API_TOKEN": "the image's own", **options})
    image = squashed(tree, folder / "torch.sqsh")
    image.chmod(0o644)
    return image


def use_standins(echelon, *, on: str = "slurm") -> None:
    echelon.env |= standins(echelon.cluster.home, echelon.cluster.environ()["PATH"]) | {
        "ECHELON_ON": on,
        "FROM_HERE": "here",
    }


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


def test_apptainer_gets_nv_if_the_job_has_gpus(echelon):
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
    assert 'pyxis: error: a container with name "pyxis_yours" does not exist' in result.stderr


@pytest.mark.parametrize(
    ("launcher", "environment"), [("torchrun", "enroot"), ("srun", "pyxis"), ("srun", "enroot"), ("mpirun", "enroot")]
)
def test_a_launcher_in_a_container(echelon, image, launcher, environment):
    """srun and mpirun start the containers, one for each rank; torchrun is started inside of one."""
    use_standins(echelon)
    flags = ("--launcher", launcher, "--env", environment, "--image", image, "--set", "API_TOKEN=hush")
    env = {"STANDIN_REMOVAL": "6"}  # longer than a launcher may take to leave otherwise
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP), env=env)
    assert told(result) == on_both("True image hush here")
    assert pyxis_containers(echelon) == []


def test_image_without_python_in_pyxis_is_reported(echelon):
    use_standins(echelon)
    image = image_in(echelon.folder, python=None)
    result = echelon("run", "--env", "pyxis", "--image", image, "--restarts", "2", echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "the environment (pyxis) could not be entered (on n1)" in result.stderr
    assert f"cannot run python3 in the image {image}" in result.stderr


def pyxis_containers(echelon, pattern="pyxis_[0-9]*") -> list[str]:
    """Containers of all nodes, which share one home here. Unnamed ones have the numbers of their job and step."""
    return sorted(path.name for path in (echelon.cluster.home / ".local/share/enroot").glob(f"n*/{pattern}"))


SHOW = "import os; print(os.environ['PATH'], os.environ['NVIDIA_VISIBLE_DEVICES'], os.environ['GREETING'])"


def test_pyxis_keeps_the_images_path_and_leaves_no_container(echelon):
    """Images of NVIDIA ask for all GPUs, for which enroot's hook needs a program that nodes without GPUs lack."""
    use_standins(echelon)
    image = image_in(echelon.folder, NVIDIA_VISIBLE_DEVICES="all")
    flags = ("--cold", "--env", "pyxis", "--image", image, "--set", "GREETING=set")
    script = echelon.script("train.py", SHOW)
    result = echelon("run", *flags, script, env={"STANDIN_REMOVAL": "2"})
    assert result.stdout == "[0] /image-bin:/bin void set\n", result.stderr
    assert pyxis_containers(echelon) == []


def test_cancelled_run_leaves_no_pyxis_container(echelon, image):
    use_standins(echelon)
    script = echelon.script("train.py", "import time; print('here', flush=True); time.sleep(600)")
    flags = ("--cold", "--env", "pyxis", "--image", image)
    run = echelon.submit(*flags, script, env={"STANDIN_REMOVAL": "2"})
    wait_for(lambda: "here" in run.rank_log(0), "the rank to start", 60)
    assert len(pyxis_containers(echelon)) == 1
    assert echelon("cancel", run.path.name).returncode == 0
    assert pyxis_containers(echelon) == []


def test_cancel_leaves_no_incomplete_pyxis_container(echelon, image):
    """It takes longer to create than srun may live without a container."""
    use_standins(echelon)
    flags = ("--cold", "--env", "pyxis", "--image", image)
    run = echelon.submit(*flags, echelon.script("train.py", ""), env={"STANDIN_FILL": "12", "STANDIN_REMOVAL": "1"})
    wait_for(lambda: pyxis_containers(echelon), "the folder of the container", 60)
    assert echelon("cancel", run.path.name).returncode == 0
    assert run.wait()["outcome"] == "cancelled"
    assert pyxis_containers(echelon) == []


@pytest.mark.parametrize("code", [0, 1])
def test_run_leaves_no_pyxis_container_at_any_end(echelon, image, code):
    use_standins(echelon)
    flags = ("--cold", "--env", "pyxis", "--image", image, "-N", "2")
    script = echelon.script("train.py", f"raise SystemExit({code})")
    result = echelon("run", *flags, script, env={"STANDIN_REMOVAL": "2"})
    assert result.returncode == code, result.stderr
    assert pyxis_containers(echelon) == []


def test_image_without_bash_in_pyxis_is_reported(echelon):
    use_standins(echelon)
    tree = image_tree(echelon.folder / "tree")
    (tree / "etc" / "no-bash").touch()
    image = squashed(tree, echelon.folder / "torch.sqsh")
    result = echelon("run", "--env", "pyxis", "--image", image, "--restarts", "2", echelon.script("train.py", SHOW))
    assert result.returncode == 3
    assert "the environment (pyxis) could not be entered (on n1)" in result.stderr
    assert "the image has no /bin/bash" in result.stderr
    assert pyxis_containers(echelon) == []


def test_two_jobs_may_create_one_container_of_pyxis_at_once(echelon, image):
    use_standins(echelon)
    script = echelon.script("train.py", "import os; print(os.path.exists('/etc/image'))")
    flags = ("--cold", "--env", "pyxis", "--image", image, "--container-name", "shared", "--nodelist", "n1")
    runs = [echelon.submit(*flags, script, env={"STANDIN_SLOWLY": "3"}) for _ in range(2)]
    for run in runs:
        assert run.wait()["outcome"] == "succeeded"
        assert run.rank_log(0) == "True\n"
    said = "".join(run.path.joinpath("job.out").read_text() for run in runs)
    assert said.count("[ERROR] File already exists") == 1
    assert pyxis_containers(echelon, "pyxis_shared") == ["pyxis_shared"]


def test_a_job_waits_for_a_container_that_another_is_creating(echelon, image):
    use_standins(echelon)
    script, fill = echelon.script("train.py", "import os; print(os.path.exists('/etc/image'))"), echelon.folder / "fill"
    flags = ("--cold", "--env", "pyxis", "--image", image, "--container-name", "slow", "--nodelist", "n1")
    first = echelon.submit(*flags, script, env={"STANDIN_FILL": str(fill)})
    wait_for(lambda: pyxis_containers(echelon, "pyxis_slow"), "the folder of the container", 60)
    second = echelon.submit(*flags, script)
    wait_for(lambda: second.events("warning"), "the warning that it waits", 60)
    assert "the container slow cannot be used yet (the image has no /bin/bash)" in second.events("warning")[0]["text"]
    fill.touch()
    for run in (first, second):
        assert run.wait()["outcome"] == "succeeded"
        assert run.rank_log(0) == "True\n"


def test_messages_of_pyxis_are_shown(echelon, image):
    use_standins(echelon)
    flags = ("--env", "pyxis", "--image", "nvcr.io#nvidia/nope", "--restarts", "2")
    result = echelon("run", *flags, echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "pyxis: failed to import docker image: nvcr.io#nvidia/nope" in result.stderr


def test_a_missing_module_on_slurm(echelon):
    result = echelon("run", "-N", "2", "--modules", "nonsense", "--requeues", "2", echelon.script("train.py", ADD_UP))
    assert result.returncode == 3
    assert "the environment (modules) could not be entered (on n" in result.stderr
    assert "Unable to locate a modulefile for 'nonsense'" in result.stderr


def test_a_virtual_environment_on_slurm(echelon):
    result = echelon("run", "-N", "2", "-g", "2", "--venv", sys.prefix, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("False None None None")


def test_notice_in_a_container_requeues_the_job(echelon):
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
    """Tasks of PBS do not get our variables. PATH is set by a line of --setup, the others are sent over the channel."""
    own = standins(echelon.cluster.home, "/usr/bin:/bin")
    setup = [word for name, value in own.items() for word in ("--setup", f"export {name}={shlex.quote(value)}")]
    flags = ("--image", image, "--set", "API_TOKEN=hush", *setup)
    result = echelon("run", "-N", "2", "-g", "2", *flags, echelon.script("train.py", ADD_UP))
    assert told(result) == on_both("True image hush here")


def test_variables_set_by_node_sh_take_precedence_on_pbs(echelon, pbs):
    flags = ("--setup", "export GREETING=setup PATH=/own:$PATH")
    script = echelon.script("train.py", "import os; print(os.environ['GREETING'], os.environ['PATH'])")
    result = echelon("run", "-N", "2", "--cold", *flags, script, env={"GREETING": "carried"})
    assert result.returncode == 0, result.stderr
    for line in result.stdout.splitlines():
        assert line.partition("] ")[2].startswith("setup /own:")
        assert str(pbs.bin) in line, "what was sent along is still there, behind it"


def test_venv_on_pbs_leaves_no_key_in_the_folder(echelon, pbs):
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
    own = standins(ssh_cluster.home, "/usr/bin:/bin")
    setup = [word for name, value in own.items() for word in ("--setup", f"export {name}={shlex.quote(value)}")]
    assert trained_over_ssh(tool, "--image", image, *setup) == on_both("True image hush here", ("h1", "h2"))


def test_fatal_error_of_apptainer_over_ssh(over_ssh):
    tool = over_ssh(shared=False)
    tool.script("train.py", ADD_UP)
    setup = ("--setup", f"export PATH={shlex.quote(standins(tool.cluster.home, '/usr/bin:/bin')['PATH'])}")
    flags = ("--image", "docker://nowhere/nothing", "--restarts", "2", *setup)
    result = tool("run", "--snapshot", *flags, "train.py")
    assert result.returncode == 3
    assert "the environment (apptainer) could not be entered (on h" in result.stderr
    assert "the command that enters it failed with exit code 255" in result.stderr
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


def test_user_is_not_root(cluster):
    assert int(cluster.run("n1", ["id", "-u"]).stdout) == UID != os.getuid()
