"""Every launcher in every environment on every scheduler: three parts that do not depend on each other, or a reason."""

from dataclasses import replace
from itertools import product

import pytest
from test_node_script import FLAGS, GOLDEN, MACHINE, RUN, SCHEDULERS, job

from echelon.cli.render import HEADING, rendered
from echelon.errors import ConfigError
from echelon.launchers import LAUNCHERS
from echelon.launchers.pairs import objection

MATRIX = GOLDEN / "matrix.txt"
CASES = list(product(SCHEDULERS, LAUNCHERS, FLAGS))
ENVIRON = {"HOME": "/home/ada", "PATH": "/usr/bin:/bin"}


def parts(scheduler, launcher, environment):
    """The job script, node.sh, and what the agents run; the last two are empty where there is none."""
    made = replace(job(scheduler, FLAGS[environment]), launcher=launcher)
    text = rendered(made, RUN, ENVIRON)
    text, _, started = text.partition("\n# ---- then ")
    script, _, node = text.partition(f"\n{HEADING.format(file='node.sh')}")
    return script, node, started.partition("\n")[2]


def refusal(scheduler, launcher, environment):
    try:
        job(scheduler, FLAGS[environment])
    except ConfigError as error:
        return error.what
    found = objection(launcher, scheduler, environment, in_slurm=False)
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


def test_the_table_is_the_golden_one():
    assert table() == MATRIX.read_text()


@pytest.mark.parametrize(("scheduler", "launcher", "environment"), ENCLOSED)
def test_the_job_script_and_the_environment_are_the_same_whatever_the_launcher(scheduler, launcher, environment):
    script, node, _ = parts(scheduler, launcher, environment)
    assert script == (GOLDEN / f"enclosed-{scheduler}.sh").read_text()
    assert node == (GOLDEN / f"env-{environment}.sh").read_text()
