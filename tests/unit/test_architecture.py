"""ARCHITECTURE.md names every module of the package once, and nothing that does not exist."""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "echelon"
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
MOST_LINES = 150


def modules_of_package():
    """Folder and stem of each module, except empty ones."""
    files = [path for path in PACKAGE.rglob("*.py") if path.read_text().strip()]
    return Counter((str(path.parent.relative_to(PACKAGE)).removeprefix("."), path.stem) for path in files)


def modules_of_tree():
    """Folder and stem of each name in the table. Rows without a folder list modules of the package itself."""
    tree = TEXT.partition("## The tree")[2].partition("\n## ")[0]
    rows = [line.split(" | ", 1) for line in tree.splitlines() if line.startswith("| ")][1:]
    folders = [(re.match(r"\| `([\w/]+)/`", first), files) for first, files in rows]
    return Counter(
        (found[1] if found else "", stem) for found, files in folders for stem in re.findall(r"`([^`]*)`", files)
    )


def test_every_module_is_named_once():
    assert modules_of_tree() == modules_of_package()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([a-z_]+/[a-z_./]*)`", TEXT))))
def test_named_path_exists(name):
    paths = [ROOT / name, PACKAGE / name, PACKAGE / f"{name}.py"]
    assert any(path.exists() for path in paths)


def test_page_is_short():
    assert len(TEXT.splitlines()) <= MOST_LINES
