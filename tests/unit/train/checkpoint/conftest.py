"""Fixtures of the checkpoint tests."""

import os

import pytest


@pytest.fixture
def alone(monkeypatch):
    """A single rank: no launcher variables are set."""
    for name in [name for name in os.environ if name.startswith(("ECHELON_", "SLURM_", "PMI_", "OMPI_"))]:
        monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
