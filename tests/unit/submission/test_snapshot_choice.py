"""Which files of a project are in its snapshot: plain values, by the dozen."""

import os
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.submission.secret_names import is_secret
from echelon.submission.snapshot_files import (
    Exclusion,
    ProjectFile,
    copied_link_target,
    is_junk,
    select_files,
)
from echelon.text import parse_size

PROJECT = Path("/home/ada/gpt")


@pytest.mark.parametrize("name", [".git/config", "a/__pycache__/b.pyc", ".venv/bin/python", "x/node_modules/y.js"])
def test_junk_is_left_out_silently(name):
    assert is_junk(PurePath(name))
    chosen = select_files([ProjectFile(path=PurePath(name))], 10)
    assert (chosen.taken, chosen.left) == ((), ())


words = st.text("abc._-", min_size=1, max_size=6) | st.sampled_from([".env", "x.pem", "src", "train.py", ".git"])
entries = st.builds(
    ProjectFile,
    path=st.lists(words, min_size=1, max_size=3).map(lambda parts: PurePath(*parts)),
    size=st.integers(0, 200),
)


@given(st.lists(entries), st.integers(0, 200))
def test_every_file_is_taken_or_left_for_a_reason_or_junk(files, most):
    chosen = select_files(files, most)
    junk = [entry for entry in files if is_junk(entry.path)]
    assert len(chosen.taken) + len(chosen.left) + len(junk) == len(files)
    assert all(entry.size <= most and not is_secret(entry.path) for entry in chosen.taken)
    assert all(is_secret(entry.path) for entry in chosen.left_for(Exclusion.SECRET))
    assert all(entry.size > most for entry in chosen.left_for(Exclusion.LARGE))
    assert chosen.total_bytes == sum(entry.size for entry in chosen.taken)


@pytest.mark.parametrize(("text", "size"), [("50M", 50 << 20), ("1G", 1 << 30), ("3K", 3072), ("2", 2 << 20), ("0", 0)])
def test_sizes_are_formatted_with_units(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("link", "copied", "outside"),
    [
        ("model.py", "model.py", False),
        ("../lib/a.py", "../lib/a.py", False),
        ("/home/ada/gpt/lib/a.py", "../lib/a.py", False),
        ("/datasets/c4", "/datasets/c4", True),
        ("../../shared", "/home/ada/shared", True),
        ("/home/ada/gpt-old/x", "/home/ada/gpt-old/x", True),
    ],
)
def test_link_points_to_its_target_or_the_copied_target(link, copied, outside):
    assert copied_link_target(ProjectFile(path=PurePath("src/link"), link=link), PROJECT) == (copied, outside)


@given(st.lists(st.sampled_from(["..", "a", "."]), min_size=1, max_size=6), st.booleans())
def test_links_inside_do_not_point_to_the_project(parts, absolute):
    text = ("/home/ada/gpt/" if absolute else "") + "/".join(parts)
    copied, outside = copied_link_target(ProjectFile(path=PurePath("src/x/link"), link=text), PROJECT)
    code = Path("/runs/1/code")
    leads_to = Path(os.path.normpath(code / "src/x" / copied))
    assert leads_to.is_relative_to(code) or outside
    if not outside:
        before = Path(os.path.normpath(PROJECT / "src/x" / text))
        assert leads_to.relative_to(code) == before.relative_to(PROJECT)
