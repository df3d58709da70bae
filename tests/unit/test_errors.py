"""What a person is told: what, from where, why, and what to type."""

import pytest

from echelon.errors import ConfigError, EchelonError, JobFailed, RemoteError, SchedulerError, SchedulerUnreachable


def test_a_message_has_four_parts_in_order():
    error = ConfigError("nodes is 64", origin="echelon.toml:7", why="there are 32", hint="--nodes 32")
    assert str(error) == ("error: nodes is 64\n  from  echelon.toml:7\n  why   there are 32\n  try   --nodes 32")


@pytest.mark.parametrize("missing", [None, ""])
def test_parts_that_are_missing_are_left_out(missing):
    assert str(ConfigError("bad", origin=missing, why="because", hint=missing)) == "error: bad\n  why   because"


def test_later_lines_of_a_part_stand_under_the_first():
    assert str(EchelonError("bad", why="one\ntwo\n")) == "error: bad\n  why   one\n        two"


def test_a_remote_error_carries_the_host():
    error = RemoteError("copy failed", host="gpu7", why="no space")
    assert error.host == "gpu7"
    assert "  from  gpu7" in str(error)


def test_an_unreachable_scheduler_is_a_scheduler_error():
    assert issubclass(SchedulerUnreachable, SchedulerError)


@pytest.mark.parametrize("kind", [ConfigError, SchedulerError, JobFailed])
def test_all_errors_are_echelon_errors(kind):
    with pytest.raises(EchelonError):
        raise kind("bad")
