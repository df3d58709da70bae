"""`why` after real runs: its JSON matches the schema in docs/why.md, and its text names rank, line and files."""

import json

from running import SCRIPTS
from why_schema import problems

STEPS = SCRIPTS / "steps.py"


def test_why_after_a_hang_has_the_documented_fields(echelon):
    result = echelon("run", "-N", "2", "-g", "2", "--cold", "--hang-timeout", "2s", STEPS, "--do", "sleep", "--report")
    assert result.returncode == 1
    found = json.loads(echelon("why", "--json").stdout)
    assert problems(found) == []
    assert [one["rank"] for one in found["evidence"]["ranks"]] == [0, 1, 2, 3]
    full = echelon("why", "--full").stdout.splitlines()
    assert any(line.endswith("steps.py:34 in misbehave (time.sleep)") for line in full)
    assert "ranks 0, 2, 3:" in full


def test_why_after_a_crash_has_the_documented_fields(echelon):
    assert echelon("run", "-g", "2", "--cold", STEPS, "--do", "raise").returncode == 1
    found = json.loads(echelon("why", "--json").stdout)
    assert problems(found) == []
    assert (found["verdict"]["rank"], found["evidence"]) == (1, None)
