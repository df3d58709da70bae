"""GPUs counted in simulated /proc and /sys trees, and the Python with torch."""

import subprocess
import sys
from pathlib import Path

import pytest

import echelon
from echelon.errors import EnvironmentProblem
from echelon.system.machine import check_python, count_gpus, default_python, find_program, resolve_gpus_per_node


@pytest.fixture
def nvidia(tmp_path):
    for index in range(4):
        (tmp_path / f"proc/driver/nvidia/gpus/0000:0{index}:00.0").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def amd(tmp_path):
    for index, gpu_id in enumerate(["0\n", "0\n", "51234\n", "8721\n"]):  # two of them are CPUs
        node = tmp_path / f"sys/class/kfd/kfd/topology/nodes/{index}"
        node.mkdir(parents=True)
        (node / "gpu_id").write_text(gpu_id)
    return tmp_path


def test_a_machine_without_gpus_has_none(tmp_path):
    assert count_gpus({}, tmp_path) == 0
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path) == 0


def test_nvidia_gpus_are_counted(nvidia):
    assert count_gpus({}, nvidia) == 4


def test_amd_gpus_are_counted_without_the_cpus(amd):
    assert count_gpus({}, amd) == 2


@pytest.mark.parametrize(
    ("listed", "count"),
    [("0,1", 2), ("3", 1), ("", 0), ("-1", 0), ("GPU-8f2a,GPU-77aa,GPU-1", 3), ("0,1,2,3,4,5", 4), (" 0 , 1 ", 2)],
)
def test_gpus_that_are_hidden_do_not_count(nvidia, listed, count):
    assert count_gpus({"CUDA_VISIBLE_DEVICES": listed}, nvidia) == count


@pytest.mark.parametrize(
    ("asked", "nodes", "present", "per_node"),
    [(None, 1, 4, 4), (None, 2, 4, 2), (None, 3, 4, 1), (2, 2, 4, 2), (1, 2, 4, 1), (None, 1, 0, 0), (8, 2, 0, 0)],
)
def test_gpus_are_shared_out_among_the_nodes(asked, nodes, present, per_node):
    assert resolve_gpus_per_node(asked=asked, nodes=nodes, present=present, cpu=False) == per_node


def test_on_cpu_no_gpu_is_used():
    assert resolve_gpus_per_node(asked=8, nodes=2, present=4, cpu=True) == 0


@pytest.mark.parametrize(
    ("asked", "nodes", "what"),
    [
        (4, 2, "2 nodes x 4 GPUs = 8 GPUs requested, but this machine has 4"),
        (None, 5, "5 nodes x 1 GPUs = 5 GPUs requested, but this machine has 4"),
    ],
)
def test_more_gpus_than_there_are_is_an_environment_problem(asked, nodes, what):
    with pytest.raises(EnvironmentProblem) as caught:
        resolve_gpus_per_node(asked=asked, nodes=nodes, present=4, cpu=False)
    assert caught.value.what == what
    assert "--cpu" in caught.value.hint


def test_our_own_python_is_used_when_it_has_torch(tmp_path):
    pytest.importorskip("torch")
    assert default_python({"VIRTUAL_ENV": str(tmp_path)}) == sys.executable


def chosen_without_torch(**environ):
    """What a Python that sees no installed packages would choose."""
    source = Path(echelon.__file__).parents[1]
    code = f"""
import sys
sys.path.insert(0, {str(source)!r})
from echelon.system.machine import default_python
print(default_python({environ!r}))
"""
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def environment(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    return tmp_path


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_without_torch_the_active_environment_is_used(environment, variable):
    assert chosen_without_torch(**{variable: str(environment)}) == str(environment / "bin" / "python")


def test_without_torch_or_environment_the_current_python_is_used(tmp_path):
    assert chosen_without_torch(VIRTUAL_ENV=str(tmp_path / "gone")) == sys.executable


def test_program_is_found_as_in_a_shell(environment):
    environ = {"PATH": f"/nonexistent:{environment / 'bin'}"}
    assert find_program("python", environ) == str(environment / "bin" / "python")
    assert find_program("bin", {"PATH": str(environment)}) is None, "a folder is no program"
    assert find_program(str(environment / "bin" / "python"), {}) == str(environment / "bin" / "python")
    assert find_program("python", {}) is None


def test_existing_python_is_accepted(environment):
    python = str(environment / "bin" / "python")
    assert check_python(python, "default", {}, here=True) is None
    assert check_python(python, "default", {}, here=False) is None


def test_a_path_that_only_the_nodes_may_have_is_a_warning():
    assert "the nodes must have it" in check_python("/nope/python", "--python", {}, here=False)


@pytest.mark.parametrize(("python", "here"), [("/nope/python", True), ("nopython", True), ("nopython", False)])
def test_a_python_that_cannot_be_there_is_refused(python, here):
    with pytest.raises(EnvironmentProblem, match=python) as caught:
        check_python(python, "--python x", {"PATH": "/bin"}, here=here)
    assert caught.value.origin == "--python x"
