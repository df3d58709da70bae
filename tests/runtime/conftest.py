"""Real runs of the real command line."""

from crowd import crowd  # noqa: F401

from local_tool import echelon  # noqa: F401
