"""The mounts that let an ordinary user reach what lies under closed folders."""

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


def test_what_is_open_needs_no_mount(top):
    assert reach([make(top / "venv")], {}) == []


def test_a_closed_folder_is_covered_once_for_all_that_is_wanted_in_it(top):
    closed = make(top / "closed", 0o700)
    wanted = [make(closed / "python"), make(closed / "deep" / "venv")]
    assert reach(wanted, {}) == [cover(closed), bind(wanted[0]), bind(wanted[1])]


def test_what_lies_in_a_wanted_folder_comes_with_it(top):
    checkout = make(make(top / "closed", 0o700) / "checkout")
    assert reach([make(checkout / ".venv"), checkout], {}) == [cover(top / "closed"), bind(checkout)]


def test_a_closed_folder_within_a_wanted_one_is_covered_too(top):
    checkout = make(make(top / "closed", 0o700) / "checkout")
    inner = make(make(checkout / "private", 0o700) / "venv")
    steps = [cover(top / "closed"), bind(checkout), cover(checkout / "private"), bind(inner)]
    assert reach([checkout, inner], {}) == steps


def test_of_a_wanted_folder_that_is_closed_itself_the_contents_are_bound(top):
    checkout = make(top / "checkout", 0o700)
    parts = [make(checkout / "src"), make(checkout / "tests")]
    assert reach([checkout], {}) == [cover(checkout), *map(bind, parts)]


def test_what_lies_under_a_folder_that_nodes_have_of_their_own_is_bound_again(top):
    checkout = make(top / "own" / "checkout")
    assert reach([checkout, top / "own"], {top / "own": "1777"}) == [Cover(str(top / "own"), "1777"), bind(checkout)]
