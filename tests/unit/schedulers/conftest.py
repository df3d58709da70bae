"""What tests of schedulers share."""

from slurm_on_path import cluster  # noqa: F401
