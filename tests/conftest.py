"""Order of the tests, and which of them run: tests that need root only with root, rare ones only with ALL_TESTS."""

import collections
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from smoke_summary import smoke_lines, unusable_python_lines

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell without job control starts background jobs without it


SLOWEST_FIRST = (
    "smoke",
    "cluster",
    "examples",
    "runtime",
    "unit",
)  # the many short files at the end keep all workers busy
HERE = Path(__file__).parent
RARE = (HERE / "rare.txt").read_text().splitlines()
"""Node ids below tests/, without parameters or with them. tools/test --all, which runs every night, includes them."""


def is_rare(node_id):
    name = node_id.removeprefix("tests/")
    return any(name == rare or name.startswith((f"{rare}::", f"{rare}[")) for rare in RARE)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: SLOWEST_FIRST.index(item.path.relative_to(HERE).parts[0]))
    if "ALL_TESTS" not in os.environ:
        rare = [item for item in items if is_rare(item.nodeid)]
        config.hook.pytest_deselected(items=rare)
        items[:] = [item for item in items if item not in set(rare)]
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="mounts a file system, so it needs root"))


def pytest_sessionfinish(session):
    """With SKIP_NOTHING, a skipped test or a Python that the smoke tests cannot use is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if "SKIP_NOTHING" not in os.environ or reporter is None:
        return
    if reporter.stats.get("skipped") or unusable_python_lines():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    """Tests on a cluster record the version of its Slurm, smoke tests the Python and torch; others were not run."""
    ran = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    versions = [value for report in ran for name, value in report.user_properties if name == "slurm"]
    counts = [f"{count} on {version}" for version, count in sorted(collections.Counter(versions).items())]
    if counts:
        terminalreporter.write_line(f"tests on a real Slurm: {', '.join(counts)}")
    errors = unusable_python_lines() if "SKIP_NOTHING" in os.environ else []
    for line in (*smoke_lines(ran), *errors):
        terminalreporter.write_line(line)
