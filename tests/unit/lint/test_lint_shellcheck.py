"""Findings of shellcheck beside our own. The shellcheck is a program first on PATH that reports what a test expects."""

import json

import pytest
from linting import CLEAN

FAKE = """#!/bin/sh
for last; do :; done
echo '{"comments":[
 {"file":"'"$last"'","line":3,"level":"warning","code":2046,"message":"Quote this."},
 {"file":"'"$last"'","line":4,"level":"error","code":2068,"message":"Quote arrays."},
 {"file":"'"$last"'","line":1,"level":"error","code":1072,"message":"syntax"},
 {"file":"/other","line":1,"level":"error","code":2000,"message":"elsewhere"}]}'
"""


@pytest.fixture
def checked(lint):
    """With a shellcheck first on PATH that reports two findings for the last file."""
    lint.write("bin/shellcheck", FAKE)
    (lint.folder / "bin" / "shellcheck").chmod(0o755)
    lint.env["PATH"] = f"{lint.folder / 'bin'}:{lint.env['PATH']}"
    return lint


def test_findings_of_shellcheck_are_merged(checked):
    answer = json.loads(checked("--json", "clean.sh").stdout)
    assert [(one["line"], one["rule"], one["severity"]) for one in answer["findings"]] == [
        (3, "SC2046", "warning"),
        (4, "SC2068", "error"),
    ]


def test_shellcheck_counts_lines_of_the_document(checked):
    checked.write("a.md", f"# Job\n\n```bash\n{CLEAN}```\n")
    assert [one["line"] for one in json.loads(checked("--json", "a.md").stdout)["findings"]] == [6, 7]


@pytest.mark.parametrize("argv", [("--no-shellcheck",), ("--ignore", "SC2046,SC2068"), ("--select", "fixed-port")])
def test_shellcheck_can_be_left_out(checked, argv):
    assert json.loads(checked("--json", *argv, "clean.sh").stdout)["findings"] == []


def test_one_rule_of_shellcheck_can_be_selected(checked):
    answer = json.loads(checked("--json", "--select", "SC2068", "warning.sh").stdout)
    assert [one["rule"] for one in answer["findings"]] == ["SC2068"]


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho nonsense\n", "#!/bin/sh\necho '[1]'\n"])
def test_shellcheck_that_fails_is_as_none(checked, text):
    checked.write("bin/shellcheck", text)
    assert json.loads(checked("--json", "clean.sh").stdout)["findings"] == []


def test_requested_but_missing_shellcheck_is_an_error(lint):
    done = lint("--shellcheck", "clean.sh")
    assert done.returncode == 3
    assert "shellcheck is not installed" in done.stderr
