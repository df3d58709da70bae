"""Every launcher in every environment on every scheduler: independent, or refused with a reason."""

from dataclasses import replace
from itertools import product

import pytest
from test_node_script import FLAGS, GOLDEN, MACHINE, RUN, SCHEDULERS, job

from echelon.backends import backend
from echelon.cli.render import NODE_SCRIPT_HEADING, render_scripts
from echelon.errors import ConfigError
from echelon.launchers import LAUNCHERS, find_incompatible_pair

MATRIX = GOLDEN / "matrix.txt"
CASES = list(product(SCHEDULERS, LAUNCHERS, FLAGS))
ENVIRON = {"HOME": "/home/ada", "PATH": "/usr/bin:/bin"}


def parts(scheduler, launcher, environment):
    """The job script, node.sh, and what the agents run; the last two are empty where there is none."""
    made = replace(job(scheduler, FLAGS[environment]), launcher=launcher)
    text = render_scripts(made, RUN, ENVIRON)
    text, _, started = text.partition("\n# ---- then ")
    script, _, node = text.partition(f"\n{NODE_SCRIPT_HEADING.format(file='node.sh')}")
    return script, node, started.partition("\n")[2]


def refusal(scheduler, launcher, environment):
    try:
        job(scheduler, FLAGS[environment])
    except ConfigError as error:
        return error.what
    ours = backend(scheduler)
    srun, mpirun = ours.uses_srun({}), ours.mpirun_reaches_nodes
    found = find_incompatible_pair(launcher, environment, has_srun=srun, mpirun_reaches_nodes=mpirun)
    return found and found.why


def entry(scheduler, launcher, environment):
    """One line of the golden table."""
    refused = refusal(scheduler, launcher, environment)
    if refused:
        return f"no: {refused}"
    started = parts(scheduler, launcher, environment)[2]
    return "; ".join(line.removeprefix("# ") for line in started.splitlines()) or "our agents start the ranks"


def table():
    return "".join(f"{' '.join(case):<32} {entry(*case)}\n" for case in CASES)


ENCLOSED = [case for case in CASES if case[2] != "bare" and not refusal(*case)]


@pytest.fixture(autouse=True)
def echelons_own_python(monkeypatch):
    monkeypatch.setattr("sys.executable", MACHINE.host_python)


def test_matrix_equals_golden_table():
    assert table() == MATRIX.read_text()


@pytest.mark.parametrize(("scheduler", "launcher", "environment"), ENCLOSED)
def test_launcher_does_not_change_the_scripts(scheduler, launcher, environment):
    script, node, _ = parts(scheduler, launcher, environment)
    assert script == (GOLDEN / f"enclosed-{scheduler}.sh").read_text()
    assert node == (GOLDEN / f"env-{environment}.sh").read_text()
