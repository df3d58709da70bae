"""What the user may have meant."""

import pytest

from echelon.config.suggest import closest


@pytest.mark.parametrize(("word", "guess"), [("nodse", "nodes"), ("restart", "restarts"), ("nodes", "nodes")])
def test_the_closest_word_is_offered(word, guess):
    assert closest(word, ["nodes", "restarts", "time"]) == f"did you mean {guess}?"


@pytest.mark.parametrize("word", ["xyz", ""])
def test_where_nothing_is_close_nothing_is_offered(word):
    assert closest(word, ["nodes", "restarts"]) is None


def test_nothing_is_known_nothing_is_offered():
    assert closest("nodes", []) is None
