"""The versions of Slurm that the cluster tests run on: the machine's own, and those that tools/slurm_tree.py unpacked."""

from pathlib import Path

import pytest

from cache import cache


def tree_of(suite: str) -> Path:
    return cache() / f"slurm-{suite}"


def version_of(suite: str) -> str | None:
    """For example 24.11.5; None if that Slurm was not unpacked."""
    path = tree_of(suite) / "version"
    return path.read_text().strip() if path.exists() else None


def unpacked(suite: str) -> list:
    """A parameter for the fixture `slurm`: that suite, or a skip if its Slurm was not unpacked."""
    version = version_of(suite)
    reason = f"the Slurm of Debian {suite} is not unpacked: run tools/slurm_tree.py {suite}"
    return [pytest.param(suite, id=version or suite, marks=() if version else pytest.mark.skip(reason=reason))]
