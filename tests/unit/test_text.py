"""Numbers, sizes and suggestions in messages."""

import pytest

from echelon.text import format_size, format_steps, plural, suggest_closest


@pytest.mark.parametrize(("number", "text"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_plural_adds_an_s(number, text):
    assert plural(number, "node") == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (10 * 2**20, "10 MiB"),
        (2**40, "1 TiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_sizes_are_formatted_with_units(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("step", "saved", "text"),
    [(None, None, ""), (7, None, "7"), (1000, 900, "1000 (saved 900)"), (9, 9, "9 (saved)"), (None, 9, "9 (saved)")],
)
def test_last_trained_and_newest_saved_step_are_shown(step, saved, text):
    assert format_steps(step, saved) == text


@pytest.mark.parametrize(("word", "guess"), [("nodse", "nodes"), ("restart", "restarts"), ("nodes", "nodes")])
def test_closest_word_is_suggested(word, guess):
    assert suggest_closest(word, ["nodes", "restarts", "time"]) == f"did you mean {guess}?"


@pytest.mark.parametrize("word", ["xyz", ""])
def test_no_suggestion_without_a_close_word(word):
    assert suggest_closest(word, ["nodes", "restarts"]) is None


def test_no_suggestion_without_known_words():
    assert suggest_closest("nodes", []) is None
