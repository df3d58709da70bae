"""Runs the examples with the commands of their READMEs."""

from local_tool import echelon  # noqa: F401
