"""Numbers, sizes, lists of ranks, suggestions and hidden secrets in messages."""

import pytest

from echelon.text import (
    format_ranks,
    format_ranks_with_host,
    format_size,
    format_steps,
    format_waiting,
    group_ranks,
    mask_secrets,
    plural,
    suggest_closest,
)


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


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([5], "rank 5"),
        ([0, 1], "ranks 0, 1"),
        ([0, 1, 2], "ranks 0-2"),
        ([0, 1, 2, 3, 6, 7], "ranks 0-3, 6, 7"),
        ([7, 6, 3, 2, 1, 0], "ranks 0-3, 6, 7"),
        ([4, 4], "rank 4"),
        ([0, 2, 4], "ranks 0, 2, 4"),
        (range(1024), "ranks 0-1023"),
        (range(0, 20, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14, ..."),
    ],
)
def test_ranks_are_listed_as_spans(ranks, text):
    assert format_ranks(ranks) == text


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ({5: "n1"}, "rank 5 on n1"),
        ({4: "n1", 5: "n1"}, "ranks 4, 5 on n1"),
        ({3: "n0", 4: "n1"}, "ranks 3, 4"),
        ({0: ""}, "rank 0"),
    ],
)
def test_host_is_named_if_it_is_the_same(hosts, text):
    assert format_ranks_with_host(hosts) == text


@pytest.mark.parametrize(("ranks", "text"), [([3], "rank 3 waits"), ([0, 3], "2 ranks wait")])
def test_waiting_ranks_are_counted(ranks, text):
    assert format_waiting(ranks) == text


def test_ranks_with_the_same_text_share_a_line():
    texts = {3: "in b", 0: "in a", 1: "in a", 2: "in a", 6: "in a"}
    assert group_ranks(texts) == ("ranks 0-2, 6: in a", "rank 3: in b")


def test_many_groups_are_shortened():
    lines = group_ranks({rank: f"in {rank}" for rank in range(40)})
    assert len(lines) == 17
    assert lines[-1] == "... and 24 more groups of ranks"
