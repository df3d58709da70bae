"""Real runs of the real command line."""

from local_tool import echelon  # noqa: F401
