"""tools/picture.py shortens long pauses, and the picture in the README has none."""

import re
import runpy
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "picture.py"))


def test_long_pauses_are_shortened_and_short_ones_are_not():
    lines = [(0.0, "$ run"), (0.5, "a"), (15.5, "b"), (15.5, "c"), (15.75, "d"), (27.0, "e")]
    assert TOOL["shorten_pauses"](lines) == [
        (0.0, "$ run"),
        (0.5, "a"),
        (1.5, "b"),
        (1.5, "c"),
        (1.75, "d"),
        (2.75, "e"),
    ]


def test_picture_describes_shortened_pauses():
    assert "<desc>Pauses longer than 1 s are shortened.</desc>" in TOOL["render_svg"]([(0.0, "$ run")])


def test_readme_picture_has_no_long_pauses():
    text = (ROOT / "docs" / "run.svg").read_text()
    moments = [0.0, *map(float, re.findall(r"animation-delay:([\d.]+)s", text))]
    assert all(after - before <= 1.01 for before, after in pairwise(moments))
    assert "Pauses longer than 1 s are shortened" in text


def test_long_lines_are_wrapped_like_in_a_terminal():
    wrapped = TOOL["wrap_lines"]([(0.0, "a" * 250), (1.0, ""), (2.0, "\x1b[31m" + "b" * 120)])
    assert [(moment, len(text)) for moment, text in wrapped] == [
        (0.0, 100),
        (0.0, 100),
        (0.0, 50),
        (1.0, 0),
        (2.0, 125),
    ]
