"""The help of run: grouped, short by default, complete with --help-all."""

import pytest
from click.testing import CliRunner

from echelon.cli import commands
from echelon.cli._help import GROUPS, RARE
from echelon.config.options import BY_KEY, OPTIONS

TWO_SCREENS = 80


def help_of(*words, width=80):
    done = CliRunner().invoke(commands, words, terminal_width=width, prog_name="echelon")
    assert done.exit_code == 0
    return done.output


def test_every_option_is_in_one_group():
    listed = [key for keys in GROUPS.values() for key in keys]
    assert sorted(listed) == sorted(option.key for option in OPTIONS if option.has_flag)
    assert set(listed) > RARE


def test_help_fits_two_screens_and_starts_with_examples():
    lines = help_of("run", "--help").splitlines()
    assert len(lines) <= TWO_SCREENS
    assert [line.split()[:2] for line in lines if line.startswith("  echelon")] == [["echelon", "run"]] * 3
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", ["run", "submit", "render"])
def test_help_all_shows_every_option(command):
    text = help_of(command, "--help-all")
    assert all(
        f"{BY_KEY[key].flag} " in text or f"{BY_KEY[key].flag}\n" in text for keys in GROUPS.values() for key in keys
    )


def test_help_shows_the_first_sentence_and_help_all_the_rest():
    assert "storage=gdata" not in help_of("run", "--help")
    assert "storage=gdata" in help_of("run", "--help-all")


def test_help_all_needs_no_script():
    assert "Keep it running" in help_of("run", "-N", "2", "--help-all")
