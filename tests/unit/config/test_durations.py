"""Durations as people type them, and as they are told back."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.config.parse import MissingUnitError, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("0.5s", 0.5),
        ("15m", 900),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1d", 86400),
        ("1d12h", 129600),
        ("1h30m15s", 5415),
        ("1:30:00", 5400),
        ("48:00:00", 172800),
        ("2-01:00:00", 176400),
        (" 2H ", 7200),
    ],
)
def test_valid_durations_are_parsed(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "0",
        "0s",
        "0:00:00",
        "-5",
        "-5m",
        "5 m",
        "5x",
        "1:30",
        "h",
        "1e3",
        "inf",
        "nan",
        "1h-",
        "5mm5",
        "99999999999d",
        "1" + "0" * 400 + "d",
    ],
)
def test_invalid_durations_are_refused(text):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["2", " 90 ", "1.5", "007"])
def test_a_number_without_a_unit_is_refused(text):
    with pytest.raises(MissingUnitError, match=f"{text.strip()} seconds, minutes or hours"):
        parse_duration(text)


@given(st.text("0123456789dhms:.-", max_size=40))
def test_any_text_is_a_duration_or_a_value_error(text):
    try:
        assert parse_duration(text) > timedelta(0)
    except ValueError:
        pass


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (0.5, "0.5s"), (90, "90s"), (120, "2m"), (3600, "1h"), (5400, "90m"), (172800, "2d")],
)
def test_duration_is_formatted_in_the_largest_exact_unit(seconds, text):
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.integers(1, 10**8))
def test_formatted_duration_can_be_parsed(seconds):
    assert parse_duration(format_duration(timedelta(seconds=seconds))) == timedelta(seconds=seconds)
