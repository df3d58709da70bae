"""The commands in the README of an example."""

import shlex
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def first_command(example: str) -> list[str]:
    """Of the lines that are commands of echelon's, the first: what runs on any machine."""
    lines = (EXAMPLES / example / "README.md").read_text().splitlines()
    program, *words = shlex.split(next(line for line in lines if line.startswith("    echelon ")))
    assert program == "echelon"
    return words
