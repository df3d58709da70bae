"""Fixtures that the tests of backends share."""

from slurm_on_path import cluster  # noqa: F401
