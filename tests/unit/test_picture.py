"""The picture of a run: no pause in it is longer than anyone would watch, and the one in the README is such a picture."""

import re
import runpy
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "picture.py"))


def test_long_pauses_are_shortened_and_short_ones_are_not():
    lines = [(0.0, "$ run"), (0.5, "a"), (15.5, "b"), (15.5, "c"), (15.75, "d"), (27.0, "e")]
    assert TOOL["shortened"](lines) == [(0.0, "$ run"), (0.5, "a"), (1.5, "b"), (1.5, "c"), (1.75, "d"), (2.75, "e")]


def test_a_picture_says_that_it_is_so():
    assert "<desc>Pauses longer than 1 s are shortened.</desc>" in TOOL["picture"]([(0.0, "$ run")])


def test_the_picture_of_the_readme_is_over_soon():
    text = (ROOT / "docs" / "run.svg").read_text()
    moments = [0.0, *map(float, re.findall(r"animation-delay:([\d.]+)s", text))]
    assert all(after - before <= 1.01 for before, after in pairwise(moments))
    assert "Pauses longer than 1 s are shortened" in text
