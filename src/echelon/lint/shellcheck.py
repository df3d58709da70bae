"""Runs shellcheck, if it is installed, and turns its errors and warnings into findings."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from echelon.lint.model import Finding, Severity
from echelon.lint.script import Source
from echelon.system.processes import run_program
from echelon.untrusted import clean_for_terminal, parse_json

SECONDS = 120.0
FILES_AT_ONCE = 100
PREFIX = "SC"
MOST_SCRIPTS = 200
"""With more scripts it is left out unless it is asked for: it takes longer than everything else."""
LEFT_OUT = (1090, 1091, 2034, 2148, 2154, 2155, 2164, 2153, 2120, 2119, 2206, 2207)
"""Files that it cannot follow, variables from outside, and matters of style."""
PRACTICE = "shellcheck explains it: https://www.shellcheck.net/wiki/{code}"


def find_shellcheck() -> str | None:
    return shutil.which("shellcheck")


def run_shellcheck(sources: Sequence[Source], program: str) -> Iterator[tuple[Source, Finding]]:
    """A shellcheck that fails or hangs is the same as none: its findings are an addition."""
    with tempfile.TemporaryDirectory(prefix="echelon-lint-") as folder:
        paths = {str(Path(folder) / f"{number}.sh"): source for number, source in enumerate(sources)}
        for path, source in paths.items():
            Path(path).write_text(source.text, errors="replace")
        names = list(paths)
        for start in range(0, len(names), FILES_AT_ONCE):
            for comment in _comments(program, names[start : start + FILES_AT_ONCE]):
                checked = paths.get(str(comment.get("file")))
                if checked is not None:
                    yield checked, _finding(checked, comment)


def _comments(program: str, names: Sequence[str]) -> list[dict[str, Any]]:
    left_out = ",".join(f"{PREFIX}{code}" for code in LEFT_OUT)
    argv = (program, "--format=json1", "--severity=warning", "--shell=bash", f"--exclude={left_out}", *names)
    try:
        answer = parse_json(run_program(argv, os.environ, SECONDS).out)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []
    comments = answer.get("comments", []) if isinstance(answer, dict) else []
    return [one for one in comments if isinstance(one, dict) and _is_used(one)]


def _is_used(comment: dict[str, Any]) -> bool:
    """Codes from 2000 on are about quoting and logic. Below, they are about syntax, which the parser here has read."""
    code, line = comment.get("code"), comment.get("line")
    return isinstance(code, int) and code >= 2000 and isinstance(line, int)


def _finding(source: Source, comment: dict[str, Any]) -> Finding:
    line = int(comment["line"]) + source.first_line - 1
    code = f"{PREFIX}{comment.get('code')}"
    sentence = clean_for_terminal(str(comment.get("message", "")), most=300).rstrip(".")
    return Finding(
        path=source.path,
        line=line,
        rule=code,
        severity=Severity.ERROR if comment.get("level") == "error" else Severity.WARNING,
        sentence=sentence,
        practice=PRACTICE.format(code=code),
        fix="",
        start=line,
    )
