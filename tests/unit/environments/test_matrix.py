"""Every launcher in every environment on every scheduler: three parts that do not depend on each other, or a reason."""

from dataclasses import replace
from itertools import product

import pytest
from test_node_script import FLAGS, GOLDEN, MACHINE, RUN, SCHEDULERS, job

from echelon.cli.render import HEADING, rendered
from echelon.launchers import LAUNCHERS
from echelon.launchers.pairs import objection

MATRIX = GOLDEN / "matrix.txt"
ENVIRON = {"HOME": "/home/ada", "PATH": "/usr/bin:/bin"}
NOT_SLURM = "pyxis is a part of Slurm's srun"


def parts(scheduler, launcher, environment):
    """The job script, node.sh, and what the agents run; the last two are empty where there is none."""
    made = job("slurm" if environment == "pyxis" else scheduler, FLAGS[environment])
    made = replace(made, scheduler=scheduler, launcher=launcher)
    text = rendered(made, RUN, ENVIRON)
    text, _, started = text.partition("\n# ---- then ")
    script, _, node = text.partition(f"\n{HEADING.format(file='node.sh')}")
    return script, node, started.partition("\n")[2]


def entry(scheduler, launcher, environment):
    """One line of the golden table."""
    if environment == "pyxis" and scheduler != "slurm":
        return f"no: {NOT_SLURM}"
    found = objection(launcher, scheduler, environment, in_slurm=False)
    if found is not None:
        return f"no: {found.why}"
    started = parts(scheduler, launcher, environment)[2]
    return "; ".join(line.removeprefix("# ") for line in started.splitlines()) or "our agents start the ranks"


def table():
    cases = product(SCHEDULERS, LAUNCHERS, FLAGS)
    return "".join(f"{' '.join(case):<32} {entry(*case)}\n" for case in cases)


@pytest.fixture(autouse=True)
def echelons_own_python(monkeypatch):
    monkeypatch.setattr("sys.executable", MACHINE.host_python)


def test_the_table_is_the_golden_one():
    assert table() == MATRIX.read_text()


@pytest.mark.parametrize("environment", [name for name in FLAGS if name != "bare"])
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_job_script_and_the_environment_are_the_same_whatever_the_launcher(scheduler, launcher, environment):
    if entry(scheduler, launcher, environment).startswith("no: "):
        return
    script, node, _ = parts(scheduler, launcher, environment)
    assert script == (GOLDEN / f"enclosed-{scheduler}.sh").read_text()
    assert node == (GOLDEN / f"env-{environment}.sh").read_text()
