"""Where our own flags end and the script begins."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.cli._options import parse_assignments, split_script
from echelon.errors import ConfigError
from echelon.job import Script, ScriptKind

WITH_VALUE = ("-N", "--nodes", "--name", "--set")


def split(*args):
    return split_script(args, lambda flag: flag in WITH_VALUE)


def file(target, *args):
    return Script(kind=ScriptKind.FILE, target=target, args=args)


@pytest.mark.parametrize(
    ("args", "ours", "script"),
    [
        (["train.py"], [], file("train.py")),
        (["train.py", "--nodes", "5"], [], file("train.py", "--nodes", "5")),
        (["--nodes", "2", "train.py", "--nodes", "5"], ["--nodes", "2"], file("train.py", "--nodes", "5")),
        (["--nodes=2", "train.py"], ["--nodes=2"], file("train.py")),
        (["-N", "2", "train.py"], ["-N", "2"], file("train.py")),
        (["-N2", "train.py"], ["-N2"], file("train.py")),
        (["--cpu", "train.py"], ["--cpu"], file("train.py")),
        (["--unknown", "train.py"], ["--unknown"], file("train.py")),
        (["--name", "-m", "train.py"], ["--name", "-m"], file("train.py")),
        (["--name", "--", "train.py"], ["--name", "--"], file("train.py")),
        (["--set", "A=b", "--set", "C=d", "t.py"], ["--set", "A=b", "--set", "C=d"], file("t.py")),
        (["train.py", "--", "-m", "x"], [], file("train.py", "--", "-m", "x")),
        (["train.py", ""], [], file("train.py", "")),
        (["", "x"], [], file("", "x")),
        (["-", "x"], [], file("-", "x")),
        (["-m", "pkg.train", "-m"], [], Script(kind=ScriptKind.MODULE, target="pkg.train", args=("-m",))),
        (["--cpu", "-m", "pkg"], ["--cpu"], Script(kind=ScriptKind.MODULE, target="pkg")),
        (["--", "bash", "-c", "x"], [], Script(kind=ScriptKind.COMMAND, target="bash", args=("-c", "x"))),
        (["--", "--", "x"], [], Script(kind=ScriptKind.COMMAND, target="--", args=("x",))),
        (["--", "--nodes"], [], Script(kind=ScriptKind.COMMAND, target="--nodes")),
        ([], [], None),
        (["--help"], ["--help"], None),
        (["--nodes", "2"], ["--nodes", "2"], None),
        (["--nodes"], ["--nodes"], None),
        (["--"], [], None),
        (["-m"], [], None),
    ],
)
def test_own_arguments_end_at_the_script(args, ours, script):
    assert split(*args) == (ours, script)


flag = st.one_of(
    st.sampled_from([["--cpu"], ["-x"], ["--json"]]),
    st.builds(lambda name, value: [name, value], st.sampled_from(WITH_VALUE), st.text()),
    st.builds(lambda name, value: [f"{name}={value}"], st.sampled_from(("--nodes", "--name")), st.text()),
    st.builds(lambda value: [f"-N{value}"], st.text(min_size=1)),
)
ours = st.lists(flag, max_size=5).map(lambda flags: [word for words in flags for word in words])
words = st.text() | st.sampled_from(["--", "-m", "-N", "--nodes", "--nodes=3", "-", "", "train.py", "--help"])
opener = st.sampled_from(
    [(ScriptKind.FILE, ["train.py"]), (ScriptKind.MODULE, ["-m", "train.py"]), (ScriptKind.COMMAND, ["--", "train.py"])]
)


@given(ours, opener, st.lists(words))
def test_arguments_after_the_script_stay_unchanged(ours, opener, tail):
    kind, words = opener
    assert split(*ours, *words, *tail) == (ours, Script(kind=kind, target="train.py", args=tuple(tail)))


@given(st.lists(words))
def test_arguments_are_neither_lost_nor_changed(args):
    ours, script = split(*args)
    rest = [] if script is None else [script.target, *script.args]
    assert [word for word in ours + rest if word not in ("--", "-m")] == [
        word for word in args if word not in ("--", "-m")
    ]


def test_the_scripts_arguments_reach_the_job_byte_for_byte(tmp_path):
    (tmp_path / "train.py").touch()
    tail = [b"--nodes", b"5", b"", b"--", b"\xff\xfe", b"it's", b"--help", b"\n"]
    done = subprocess.run(
        [sys.executable, "-m", "echelon", "render", "--on", "local", "--json", "--nodes", "2", "train.py", *tail],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )
    job = json.loads(done.stdout)["job"]
    assert job["resources"]["nodes"] == 2
    assert [os.fsencode(word) for word in job["script"]["args"]] == tail


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [([], {}), (["A=1"], {"A": "1"}), (["A="], {"A": ""}), (["A=b=c"], {"A": "b=c"}), (["A=1", "A=2"], {"A": "2"})],
)
def test_assignments_are_split_at_the_first_equals_sign(texts, pairs):
    assert parse_assignments(texts) == pairs


def test_an_assignment_without_a_value_is_refused():
    with pytest.raises(ConfigError, match="has no value") as caught:
        parse_assignments(["LR"])
    assert caught.value.hint == "--set LR=VALUE"
