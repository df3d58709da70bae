"""stdout is data, stderr is talk."""

import json
import os
import subprocess
import sys

import pytest

from echelon.cli._output import format_age, print_json, print_table, print_verdict, say, wrap_lines, write_bytes


def test_messages_go_to_stderr(capsys):
    say("wrote echelon.toml")
    assert capsys.readouterr() == ("", "echelon: wrote echelon.toml\n")


def test_data_goes_to_stdout_byte_for_byte(capfdbinary):
    write_bytes(b"\xff\x00 raw\r\n")
    write_bytes(b"")
    assert capfdbinary.readouterr() == (b"\xff\x00 raw\r\n", b"")


def test_terminal_shows_a_character_cut_between_two_writes(capfdbinary, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    whole = "ü\n".encode()
    write_bytes(whole[:1])
    write_bytes(whole[1:])
    assert capfdbinary.readouterr().out == whole


def test_json_can_be_read_back(capsys):
    value = {"odd": "\udcff", "none": None, "list": [1, 2]}
    print_json(value)
    assert json.loads(capsys.readouterr().out) == value


def test_a_table_in_a_pipe_is_plain_columns(capsys):
    print_table(("run", "state"), [("gpt-1", "RUNNING"), ("a-much-longer-id", "LOST")])
    assert capsys.readouterr().out.splitlines() == [
        "run               state",
        "gpt-1             RUNNING",
        "a-much-longer-id  LOST",
    ]


def test_only_the_last_column_wraps_on_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("what", "value"), [("generation", "0"), ("folder", "/home/ada/project/runs/gpt-20260115-101500-7f3a")])
    shown = capsys.readouterr().out
    assert "generation" in shown
    assert "".join(line[12:].strip() for line in shown.splitlines()[2:]).startswith("/home/ada/project/runs/gpt-2026")
    assert "…" not in shown


def test_a_table_without_rows_is_its_header(capsys):
    print_table(("run", "state"), [])
    assert capsys.readouterr().out == "run  state\n"


def test_brackets_in_a_cell_are_not_markup(capsys):
    print_table(("a",), [("[red]x[/red]",)])
    assert "[red]x[/red]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (600, "10m"),
        (3600, "1h"),
        (7200, "2h"),
        (86400, "1d"),
        (864000, "10d"),
        (-5, "0s"),
    ],
)
def test_ages_are_short(seconds, text):
    assert format_age(1000.0, 1000.0 + seconds) == text


def test_an_unknown_age_is_a_dash():
    assert format_age(None) == "-"


def test_a_closed_pipe_is_an_error_even_without_data(monkeypatch):
    reader, writer = os.pipe()
    saved = os.dup(1)
    os.dup2(writer, 1)
    try:
        write_bytes(b"")
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            write_bytes(b"")
    finally:
        os.dup2(saved, 1)
        for fd in (saved, writer):
            os.close(fd)


def test_ctrl_c_during_the_imports_has_no_traceback():
    code = "import signal, echelon.__main__; print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"


def test_a_deleted_current_folder_is_named(tmp_path):
    folder = tmp_path / "gone"
    code = "import os, sys; os.rmdir(os.getcwd()); sys.argv = ['echelon', 'ls']; from echelon.cli import main; main()"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "error: the current folder does not exist any more\n  try   cd to another folder\n"


VERDICT = """train-1 failed: no progress for 4 s: rank 1 on n0 did not reach all_reduce #6 of the default group
  ranks 0, 2, 3: waiting in all_reduce at a_module_with_a_long_name.py:11
  | a line of a rank that is longer than the terminal is wide, as tracebacks are
  files   /home/ada/project/runs/train-20260115-101500-7f3a/attempt-0/evidence
  try     look at that line: all ranks must reach the same collectives"""


def test_verdict_is_wrapped_below_its_text_on_a_terminal():
    assert wrap_lines(VERDICT, 60).splitlines() == [
        "train-1 failed: no progress for 4 s: rank 1 on n0 did not",
        "  reach all_reduce #6 of the default group",
        "  ranks 0, 2, 3: waiting in all_reduce at",
        "    a_module_with_a_long_name.py:11",
        "  | a line of a rank that is longer than the terminal is wide, as tracebacks are",
        "  files   /home/ada/project/runs/train-20260115-101500-7f3a/attempt-0/evidence",
        "  try     look at that line: all ranks must reach the same",
        "          collectives",
    ]


def test_verdict_in_a_pipe_is_not_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_verdict(VERDICT)
    assert capsys.readouterr() == (VERDICT + "\n", "")


@pytest.mark.parametrize("err", [False, True])
def test_verdict_on_a_terminal_has_its_width(capsys, monkeypatch, err):
    monkeypatch.setattr(f"sys.{'stderr' if err else 'stdout'}.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    print_verdict(VERDICT, err=err)
    shown = capsys.readouterr()
    assert (shown.err if err else shown.out) == wrap_lines(VERDICT, 60) + "\n"
    assert (shown.out if err else shown.err) == ""
