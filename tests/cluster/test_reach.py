"""Mounts that give an ordinary user access to folders below unreadable ones."""

import tempfile
from pathlib import Path

import pytest

from reach import Bind, Cover, reach


@pytest.fixture
def top():
    """A folder that others can reach: pytest's own lies under closed ones."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def make(path, mode=0o755):
    path.mkdir(parents=True)
    path.chmod(mode)
    return path


def cover(path):
    return Cover(str(path), "755")


def bind(path):
    return Bind(str(path), str(path))


def test_readable_folder_needs_no_mount(top):
    assert reach([make(top / "venv")], {}) == []


def test_closed_folder_is_covered_once_for_several_paths(top):
    closed = make(top / "closed", 0o700)
    wanted = [make(closed / "python"), make(closed / "deep" / "venv")]
    assert reach(wanted, {}) == [cover(closed), bind(wanted[0]), bind(wanted[1])]


def test_contents_of_a_bound_folder_are_included(top):
    checkout = make(make(top / "closed", 0o700) / "checkout")
    assert reach([make(checkout / ".venv"), checkout], {}) == [cover(top / "closed"), bind(checkout)]


def test_a_closed_folder_within_a_wanted_one_is_covered_too(top):
    checkout = make(make(top / "closed", 0o700) / "checkout")
    inner = make(make(checkout / "private", 0o700) / "venv")
    steps = [cover(top / "closed"), bind(checkout), cover(checkout / "private"), bind(inner)]
    assert reach([checkout, inner], {}) == steps


def test_contents_of_a_closed_folder_are_bound(top):
    checkout = make(top / "checkout", 0o700)
    parts = [make(checkout / "src"), make(checkout / "tests")]
    assert reach([checkout], {}) == [cover(checkout), *map(bind, parts)]


def test_paths_below_a_node_local_folder_are_bound_again(top):
    checkout = make(top / "own" / "checkout")
    assert reach([checkout, top / "own"], {top / "own": "1777"}) == [Cover(str(top / "own"), "1777"), bind(checkout)]
