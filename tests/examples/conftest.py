"""The examples, run as their READMEs say."""

from local_tool import echelon  # noqa: F401
