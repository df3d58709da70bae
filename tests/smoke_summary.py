"""The lines of pytest's summary that name the Pythons and torch versions of the smoke tests."""

import collections
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from smoke_environments import unusable_environments, wanted_environments


def smoke_lines(reports, environments=None):
    """None if no smoke test was run."""
    versions = [value for report in reports for name, value in report.user_properties if name == "smoke"]
    if not versions:
        return []
    counts = collections.Counter(versions)
    ran = ", ".join(f"{counts[version]} on {version}" for version in dict.fromkeys(versions))
    missing = [
        f"not run by the smoke tests: Python {environment.python} with torch {environment.torch}: {environment.problem}"
        for environment in (wanted_environments() if environments is None else environments)
        if environment.problem
    ]
    return [f"smoke tests: {ran}", *missing]


def unusable_python_lines():
    """An error for each Python of this machine that the smoke tests could not use."""
    return [
        f"error: Python {one.python} is on this machine, but the smoke tests cannot use it with torch {one.torch}: {one.problem}"
        for one in unusable_environments()
    ]
