"""Numbers, sizes, suggestions and hidden secrets in messages."""

import pytest

from echelon.text import format_size, format_steps, mask_secrets, plural, suggest_closest


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN=hf_abc python train.py", "HF_TOKEN=*** python train.py"),
        ("AWS_SECRET_ACCESS_KEY=x+/y train", "AWS_SECRET_ACCESS_KEY=*** train"),
        ("python train.py --api-key abc --lr 1", "python train.py --api-key *** --lr 1"),
        ("python train.py --wandb_api_key=abc", "python train.py --wandb_api_key=***"),
        ("python train.py --password 'x'", "python train.py --password ***"),
        ("401 for https://ada:pass@host/path", "401 for https://ada:***@host/path"),
        ("redis://:pass@host:6379", "redis://:***@host:6379"),
        ("Authorization: Bearer abcdefghijkl", "Authorization: Bearer ***"),
        ("invalid token hf_abcdefghijklmnop", "invalid token hf_***"),
        ("ghp_abcdefghijklmnop123 expired", "ghp_*** expired"),
        ("key AKIAABCDEFGHIJKLMNOP", "key AKIA***"),
    ],
)
def test_secrets_are_hidden(text, shown):
    assert mask_secrets(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "tokenizer = Tokenizer(max_tokens=2048)",
        "KeyError: token 17 is unknown",
        "    tokens = batch['tokens'].to(device)",
        "--token --lr 1",
        "https://host:8080/path",
        "a/b@c: the secretary",
        "commit 292e3828e7ab589f72f72685fce8bfe46c0d16f6",
        "--api-key ***",
    ],
)
def test_ordinary_text_stays_unchanged(text):
    assert mask_secrets(text) == text
