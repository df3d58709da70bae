"""Quoting, proved by the shells themselves: every word arrives byte for byte."""

import json
import os
import shlex
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.shell import Command, fold_exports, format_command

SHOW = "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, [os.environ.get('NASTY', ''), *sys.argv[1:]])))"
NASTY = (
    "",
    " ",
    "two words",
    "'",
    '"',
    "it's",
    "a'b\"c'd",
    "$HOME",
    "${x:-y}",
    "$(touch pwned)",
    "`touch pwned`",
    "\\",
    "\\'",
    "new\nline",
    "trailing newline\n",
    "tab\tbed",
    "carriage\rreturn",
    "*",
    "?[a]",
    "~",
    "~root",
    "a;b",
    "a && b || c",
    "> out",
    "#no comment",
    "!history",
    "{a,b}",
    "-n",
    "--",
    "a=b",
    "%s %d",
    "\x01\x7f\x1b[31m",
    "\u00fcml\u00e4ut \u2028 \U0001f600",
    os.fsdecode(b"\xff\xfe not utf-8 \x80"),
)


def shells():
    return [shell for shell in ("/bin/sh", "/bin/bash", "/bin/dash") if os.access(shell, os.X_OK)]


def through(shell, command, *, replace_shell=False):
    """What a program is given when a shell has read the lines."""
    text = "\n".join(command.shell_lines(replace_shell=replace_shell)) + "\n"
    done = subprocess.run([shell], input=os.fsencode(text), stdout=subprocess.PIPE, check=True)
    variable, *argv = done.stdout.split(b"\0")
    return os.fsdecode(variable), [os.fsdecode(word) for word in argv]


@pytest.mark.parametrize("replace_shell", [False, True])
@pytest.mark.parametrize("shell", shells())
def test_hostile_arguments_arrive_byte_for_byte(shell, replace_shell):
    command = Command(argv=(sys.executable, "-S", "-c", SHOW, *NASTY))
    assert through(shell, command, replace_shell=replace_shell) == ("", list(NASTY))


@pytest.mark.parametrize("value", NASTY, ids=ascii)
def test_hostile_variable_values_arrive_byte_for_byte(value):
    command = Command(argv=(sys.executable, "-S", "-c", SHOW, "end"), env={"NASTY": value})
    assert through("/bin/sh", command) == (value, ["end"])


def test_all_variables_by_one_command_arrive_byte_for_byte():
    """However many lines it takes."""
    environ = {f"NASTY_{i}": value for i, value in enumerate(NASTY)}
    lines = fold_exports(environ)
    assert [line.startswith("export ") for line in lines] == [True, *[False] * (len(lines) - 1)]
    assert len(lines) > 1
    show = [sys.executable, "-S", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    text = "\n".join([*lines, shlex.join(show)])
    done = subprocess.run(["bash", "-c", text], env={}, capture_output=True, check=True)
    seen = json.loads(done.stdout)
    assert {name: seen.get(name) for name in environ} == environ


words = st.binary(max_size=30).filter(lambda data: b"\0" not in data).map(os.fsdecode)


@settings(max_examples=40)
@given(st.lists(words, max_size=10), words)
def test_any_bytes_at_all_arrive(argv, value):
    command = Command(argv=(sys.executable, "-S", "-c", SHOW, *argv, "end"), env={"NASTY": value})
    assert through("/bin/sh", command, replace_shell=True) == (value, [*argv, "end"])


@pytest.mark.parametrize("replace_shell", [False, True])
@pytest.mark.parametrize("name", ["my prog", "A=b", "if", "$x", "it's", "{"])
def test_a_program_may_have_any_name(tmp_path, name, replace_shell):
    program = tmp_path / name
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    lines = Command(argv=(name,)).shell_lines(replace_shell=replace_shell)
    done = subprocess.run(
        ["/bin/sh"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert done.stdout == "ran\n"


def test_variables_come_first_then_the_command():
    command = Command(argv=("python", "a b"), env={"B": "2 3", "A": "1"})
    assert command.shell_lines() == ("export A=1", "export B='2 3'", "python 'a b'")


def test_the_last_line_can_replace_the_shell():
    assert Command(argv=("python", "x")).shell_lines(replace_shell=True) == ("exec python x",)


def test_variables_reach_children_of_the_command():
    command = Command(argv=("sh", "-c", "printf %s $NASTY"), env={"NASTY": "seen"})
    done = subprocess.run(["/bin/sh", "-c", "\n".join(command.shell_lines())], capture_output=True, check=True)
    assert done.stdout == b"seen"


def test_formatted_command_can_be_typed():
    assert shlex.split(format_command(NASTY)) == list(NASTY)
