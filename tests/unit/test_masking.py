"""Secrets in text that other programs wrote are hidden. Ordinary text stays as it is."""

import pytest

from echelon.masking import mask_secrets


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
