"""What a start of echelon loads: exact, where a stopwatch would be flaky."""

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "rich", "asyncio", "importlib.metadata", "multiprocessing")


def loaded(code, folder, *argv):
    """The modules that are loaded when the code has run."""
    report = (
        "import os, sys\n"
        "def tell(code):\n"
        "    sys.stderr.write('\\nloaded ' + ' '.join(sorted(sys.modules)))\n"
        "    sys.stderr.flush()\n"
        "    leave(code)\n"
        "leave, os._exit = os._exit, tell\n"  # the command line leaves through it
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{report}{code}\ntell(0)", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**{name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}, "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rpartition("\nloaded ")[2].split())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "x.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    "argv",
    [
        ("--help",),
        ("--version",),
        ("render", "x.py"),
        ("render", "--json", "x.py"),
        ("run", "--help"),
        ("ls", "--json"),
    ],
    ids=" ".join,
)
def test_the_command_line_loads_nothing_heavy(folder, argv):
    modules = loaded("from echelon.cli import main\nmain()", folder, *argv)
    assert "click" in modules
    assert not modules & set(HEAVY)


@pytest.mark.parametrize(("scheduler", "module"), [("local", "local"), ("slurm", "slurm.script")])
def test_rendering_loads_nothing_that_acts(folder, scheduler, module):
    modules = loaded("from echelon.cli import main\nmain()", folder, "render", "--on", scheduler, "x.py")
    assert f"echelon.backends.{module}" in modules
    assert not modules & {
        "subprocess",
        "socket",
        "shutil",
        "tempfile",
        "echelon.submission.submit",
        "echelon.observe.status",
    }


def test_help_loads_no_command(folder):
    modules = loaded("from echelon.cli import main\nmain()", folder, "--help")
    left_out = ("echelon.cli.", "echelon.agent", "echelon.supervisor", "echelon.backends")
    assert not {name for name in modules if name.startswith(left_out)}


def test_help_of_a_command_loads_only_the_facts_of_backends(folder):
    modules = loaded("from echelon.cli import main\nmain()", folder, "render", "--help")
    assert "echelon.backends.slurm" in modules
    assert not {
        name for name in modules if name.startswith(("echelon.agent", "echelon.supervisor", "echelon.backends.plain"))
    }
    assert not {name for name in modules if name.endswith((".control", ".hosts"))}


def test_a_command_loads_no_other_command(folder):
    modules = loaded("from echelon.cli import main\nmain()", folder, "render", "x.py")
    assert "echelon.cli.render" in modules
    assert not modules & {"echelon.cli.run", "echelon.cli.logs", "echelon.observe.verdict", "echelon.supervisor.loop"}


def test_library_imports_nothing_of_the_control_side(folder):
    modules = loaded("import echelon; assert echelon.__version__", folder)
    assert not modules & {"torch", "click", "rich", "echelon.cli", "echelon.config", "echelon.backends"}


@pytest.mark.parametrize("part", ["supervisor.process", "agent.main", "agent.starter", "node_side"])
def test_node_side_imports_no_torch_before_it_is_needed(folder, part):
    modules = loaded(f"import echelon.{part}", folder)
    assert not modules & {"torch", "click", "rich", "echelon.cli", "echelon.config", "echelon.observe"}
