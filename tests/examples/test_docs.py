"""Runs the scripts and commands of the documentation and compares their output."""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?^```(?P<kind>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE)
RUN_ID = re.compile(r"\b[\w.]+-\d{8}-\d{6}-[0-9a-f]{4}\b")
NUMBER = re.compile(r"\d[\d.]*")


@dataclass(frozen=True)
class Command:
    words: tuple[str, ...]
    shown: tuple[str, ...]
    mark: str

    @property
    def argv(self) -> tuple[str, ...]:
        """What needs a cluster is only rendered."""
        return ("render", "--on", "slurm", *self.words[1:]) if self.mark == "on slurm" else self.words

    def comparable(self, text: str) -> str:
        """What is rendered has nothing in it that differs from run to run."""
        return text if self.mark == "on slurm" else NUMBER.sub("N", RUN_ID.sub("RUN", text))

    @property
    def exit_code(self) -> int:
        return int(self.mark.removeprefix("exits ")) if self.mark.startswith("exits ") else 0


def scripts_and_commands(page):
    """In the order of the page: (name, text) of each script with a title, and each `$ echelon` with what it shows."""
    for block in BLOCK.finditer(page):
        kind, lines = block["kind"], block["text"].splitlines()
        title = re.search(r'title="([^"]+)"', kind)
        if title:
            yield title[1], block["text"]
        elif kind == "console":
            program, *words = shlex.split(lines[0].removeprefix("$ "))
            assert (lines[0][:2], program) == ("$ ", "echelon")
            yield Command(tuple(words), tuple(lines[1:]), block["mark"] or "")


def test_every_command_of_the_pages_is_found():
    typed = sum(len(re.findall(r"^\$ ", page.read_text(), re.MULTILINE)) for page in PAGES)
    found = sum(isinstance(item, Command) for page in PAGES for item in scripts_and_commands(page.read_text()))
    assert found == typed > 10


def commands_of_the_readme():
    """Each command of "What you get", without its description after two spaces."""
    text = (ROOT / "README.md").read_text()
    for line in text[text.index("\n## What you get") : text.index("\n- The ranks' output")].splitlines():
        typed = re.split(r" {2,}", line.strip())[0]
        if line.startswith("    ") and re.search(r"\bechelon (run|submit|render) ", typed):
            yield typed


def test_commands_of_the_readme_can_be_rendered(echelon):
    echelon.script("train.py", "print('nothing to do')\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", echelon.folder / ".venv"], check=True)
    del echelon.env["ECHELON_ON"]
    commands = list(commands_of_the_readme())
    assert len(commands) > 15
    for typed in commands:
        words = shlex.split(typed)
        rest = words[words.index("echelon") + 2 :]
        somewhere = () if {"--on", "--site"} & set(rest) else ("--on", "slurm")
        result = echelon("render", *somewhere, *rest)
        assert result.returncode == 0, f"{typed}: {result.stderr}"
        assert result.stdout


@pytest.mark.torch
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_print_its_output(echelon, page):
    echelon.script("train.py", "print('nothing to do')\n")
    for item in scripts_and_commands(page.read_text()):
        if isinstance(item, Command):
            result = echelon(*item.argv)
            said = result.stdout + result.stderr
            assert result.returncode == item.exit_code, said
            lines = item.comparable(said).splitlines()
            missing = [line for line in item.shown if item.comparable(line) not in lines]
            assert not missing, said
        else:
            echelon.script(*item)


def test_numbers_equal_those_of_the_readme():
    measured = set((ROOT / "README.md").read_text().splitlines())
    rows = [line for line in (ROOT / "docs" / "cost.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 10
    assert [row for row in rows if row not in measured] == []


def test_the_pages_can_be_built(tmp_path):
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    built = (tmp_path / "site" / "stopping-in-time.html").read_text()
    assert "Stop before the time limit" in built
    assert "fonts.googleapis" not in built
