"""A sampler here knows of no launcher but those that a test tells it of."""

import pytest


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
