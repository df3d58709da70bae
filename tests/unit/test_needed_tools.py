"""Which tests are skipped because this machine lacks a tool that they need."""

import pytest

from standins.images import need

REFUSED = "bwrap: No permissions to create new namespace"


@pytest.fixture
def bwrap(tmp_path, monkeypatch):
    """A bwrap that does what the test wants, on a machine where tests may be skipped."""
    monkeypatch.delenv("SKIP_NOTHING", raising=False)

    def make(text):
        path = tmp_path / "bwrap"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return make


def condition_and_reason(mark):
    return mark.args[0], mark.kwargs["reason"]


def test_a_missing_tool_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SKIP_NOTHING", raising=False)
    path = str(tmp_path / "mksquashfs")
    assert condition_and_reason(need(path)) == (True, f"not installed: {path}")


def test_bwrap_without_permission_is_a_reason_to_skip(bwrap):
    path = bwrap(f"echo '{REFUSED}' >&2; exit 1")
    assert condition_and_reason(need(path)) == (True, f"bwrap makes no container here: {REFUSED}")


def test_working_bwrap_is_not_a_reason_to_skip(bwrap):
    assert condition_and_reason(need(bwrap("exit 0"))) == (False, "")


def test_nothing_is_skipped_if_that_is_forbidden(bwrap, monkeypatch):
    path = bwrap("exit 1")
    monkeypatch.setenv("SKIP_NOTHING", "1")
    assert condition_and_reason(need(path))[0] is False
