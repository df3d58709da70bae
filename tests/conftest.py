"""How fast a machine is decides no test; tests that need root say so here, plainly, when there is none; CI skips none."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="mounts a file system, so it needs root"))


def pytest_sessionfinish(session):
    """With SKIP_NOTHING a test that was left out is one that failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if "SKIP_NOTHING" in os.environ and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
