"""The catalogue of injected failures, and real deaths of its plain Python scripts."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.agent.deaths import NodeWatch
from echelon.diagnosis.deaths import Cause, DeathEvidence, explain_death
from echelon.diagnosis.hangs import HangCause
from echelon.diagnosis.slow import Reason

SCRIPTS = Path(__file__).parents[3] / "bench" / "scripts" / "verdicts"
CATALOGUE = runpy.run_path(str(SCRIPTS / "catalogue.py"))
CASES = {case.name: case for case in CATALOGUE["CASES"]}
CRASH, HANG, SLOW = CATALOGUE["Kind"]
RECORDED = {"exit_text"}  # the agent records the text of sys.exit; here only its output is known
PARENTS = {case.name for case in CATALOGUE["PARENTS"]}  # they kill processes of echelon
TORCH = {case.name for case in CATALOGUE["TORCH"]} | {"allocator"}
PLAIN = [
    name
    for name, case in CASES.items()
    if case.kind is CRASH
    and case.need is None
    and name not in TORCH | RECORDED | PARENTS
    and not name.startswith("errors-")
] + ["errors-KeyError", "errors-FileNotFoundError", "errors-URLError"]


def died(case, folder):
    """Runs the rank at fault alone, and returns the evidence of its death."""
    watch = NodeWatch(os.getpid())
    environ = {**os.environ, "RANK": "1", "WORLD_SIZE": "2", "PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, str(SCRIPTS / case.script), *case.arguments]
    with (folder / "output").open("wb") as output:
        child = subprocess.Popen(argv, env=environ, cwd=folder, stdout=output, stderr=output)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    lines = tuple((folder / "output").read_text(errors="replace").splitlines())
    memory = watch.memory(usage.ru_maxrss << 10)
    return DeathEvidence(code=child.returncode, output=lines, memory=memory, limits=watch.limits())


def test_catalogue_has_enough_causes():
    assert len({case.script for case in CASES.values()}) >= 40
    assert len({case.cause for case in CASES.values()}) >= 40
    assert len(CASES) == len(CATALOGUE["CASES"]), "each name is used once"


@pytest.mark.parametrize("name", CASES)
def test_each_case_has_a_script_and_a_known_cause(name):
    case = CASES[name]
    compile((SCRIPTS / case.script).read_text(), case.script, "exec")
    re.compile(case.says)
    known = {CRASH: Cause, HANG: HangCause, SLOW: Reason}[case.kind]
    assert known(case.cause.removeprefix("hang_"))


def test_each_script_is_in_the_catalogue():
    used = {case.script for case in CASES.values()}
    assert {path.name for path in SCRIPTS.glob("*.py")} == used | {"catalogue.py", "common.py"}


@pytest.mark.parametrize("name", PLAIN)
def test_real_death_is_explained(name, tmp_path):
    case = CASES[name]
    found = explain_death(died(case, tmp_path), 1, "n1")
    assert found.cause.value == case.cause
    assert re.search(case.says, "\n".join((found.sentence, found.hint, *found.details)), re.DOTALL)
