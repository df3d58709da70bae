"""The folder outside the clone where tools/ unpacks programs for the tests."""

import os
from pathlib import Path


def cache() -> Path:
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ECHELON_TEST_CACHE") or Path(parent) / "echelon-tests")
