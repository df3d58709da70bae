"""stdout is data, stderr is talk."""

import json

import pytest

from echelon.cli.output import age, print_json, print_table, say, write_bytes


def test_talk_goes_to_stderr(capsys):
    say("wrote echelon.toml")
    assert capsys.readouterr() == ("", "echelon: wrote echelon.toml\n")


def test_data_goes_to_stdout_byte_for_byte(capfdbinary):
    write_bytes(b"\xff\x00 raw\r\n")
    write_bytes(b"")
    assert capfdbinary.readouterr() == (b"\xff\x00 raw\r\n", b"")


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


def test_a_table_without_rows_is_its_header(capsys):
    print_table(("run", "state"), [])
    assert capsys.readouterr().out == "run  state\n"


def test_brackets_in_a_cell_are_no_markup(capsys):
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
    assert age(1000.0, 1000.0 + seconds) == text


def test_an_unknown_age_is_a_dash():
    assert age(None) == "-"
