"""Which files of a project are in its snapshot: plain values, by the dozen."""

import os
from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.snapshot.choice import Entry, Why, choose, in_bytes, is_junk, is_secret, link_text

PROJECT = Path("/home/ada/gpt")


@pytest.mark.parametrize(
    "name",
    [
        ".env", ".ENV", ".env.local", "prod.env", ".envrc", "keys/server.pem", "server.key", "id_rsa", "id_ed25519.bak",
        ".netrc", ".pypirc", ".aws/config", "deep/.ssh/known_hosts", "secrets.yaml", "secrets.py", "credentials.json",
        "service-account-prod.json", ".git-credentials", "kaggle.json",
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_name(name):
    assert is_secret(PurePath(name))


@pytest.mark.parametrize(
    "name",
    ["train.py", ".env.example", ".env.template", "id_rsa.pub", "keyboard.py", "environment.yml", "monkey.txt", "env.py",
     "src/secret_sauce.py", "tokenizer.json", "config/keys.py"],
)  # fmt: skip
def test_others_are_none(name):
    assert not is_secret(PurePath(name))


@pytest.mark.parametrize("name", [".git/config", "a/__pycache__/b.pyc", ".venv/bin/python", "x/node_modules/y.js"])
def test_junk_is_left_out_without_a_word(name):
    assert is_junk(PurePath(name))
    chosen = choose([Entry(path=PurePath(name))], 10)
    assert (chosen.taken, chosen.left) == ((), ())


words = st.text("abc._-", min_size=1, max_size=6) | st.sampled_from([".env", "x.pem", "src", "train.py", ".git"])
entries = st.builds(
    Entry,
    path=st.lists(words, min_size=1, max_size=3).map(lambda parts: PurePath(*parts)),
    size=st.integers(0, 200),
)


@given(st.lists(entries), st.integers(0, 200))
def test_every_file_is_taken_or_left_for_a_reason_or_junk(files, most):
    chosen = choose(files, most)
    junk = [entry for entry in files if is_junk(entry.path)]
    assert len(chosen.taken) + len(chosen.left) + len(junk) == len(files)
    assert all(entry.size <= most and not is_secret(entry.path) for entry in chosen.taken)
    assert all(is_secret(entry.path) for entry in chosen.left_for(Why.SECRET))
    assert all(entry.size > most for entry in chosen.left_for(Why.LARGE))
    assert chosen.total_bytes == sum(entry.size for entry in chosen.taken)


@pytest.mark.parametrize(("text", "size"), [("50M", 50 << 20), ("1G", 1 << 30), ("3K", 3072), ("2", 2 << 20), ("0", 0)])
def test_sizes(text, size):
    assert in_bytes(text) == size


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
def test_a_link_leads_where_it_led_or_to_the_copy_of_that(link, copied, outside):
    assert link_text(Entry(path=PurePath("src/link"), link=link), PROJECT) == (copied, outside)


@given(st.lists(st.sampled_from(["..", "a", "."]), min_size=1, max_size=6), st.booleans())
def test_no_link_inside_leads_back_to_the_project(parts, absolute):
    text = ("/home/ada/gpt/" if absolute else "") + "/".join(parts)
    copied, outside = link_text(Entry(path=PurePath("src/x/link"), link=text), PROJECT)
    code = Path("/runs/1/code")
    leads_to = Path(os.path.normpath(code / "src/x" / copied))
    assert leads_to.is_relative_to(code) or outside
    if not outside:
        before = Path(os.path.normpath(PROJECT / "src/x" / text))
        assert leads_to.relative_to(code) == before.relative_to(PROJECT)
