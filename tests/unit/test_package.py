"""The package: it is built offline from the checkout, passes twine, and an index can show its README."""

import email
import importlib
import os
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import echelon

ROOT = Path(__file__).parents[2]
OFFLINE = {**os.environ, "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, env=OFFLINE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(packages):
    (path,) = packages.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        yield file


@pytest.fixture(scope="module")
def metadata(wheel):
    return email.message_from_bytes(wheel.read(f"echelon-{echelon.__version__}.dist-info/METADATA"))


def test_twine_accepts_both_packages(packages):
    files = sorted(map(str, packages.iterdir()))
    assert [file.rpartition(".")[2] for file in files] == ["whl", "gz"]
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_has_every_file_of_the_package_and_the_license(wheel):
    files = [path for path in (ROOT / "src" / "echelon").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    package = {str(path.relative_to(ROOT / "src")) for path in files}
    names = set(wheel.namelist())
    assert {name for name in names if name.startswith("echelon/")} == package
    assert f"echelon-{echelon.__version__}.dist-info/licenses/LICENSE" in names


def test_wheel_has_the_command(wheel):
    entry_points = wheel.read(f"echelon-{echelon.__version__}.dist-info/entry_points.txt").decode()
    assert "echelon = echelon.__main__:main" in entry_points


def test_index_readme_shows_the_picture_and_has_no_dead_links(metadata):
    assert metadata["Description-Content-Type"] == "text/markdown"
    text = metadata.get_payload()
    assert "    echelon: generation 1 starts on node0, node1" in text.partition("## ")[0]
    assert not re.search(r"\]\((?!https?://|#)", text)


def test_index_readme_points_to_the_address():
    make = runpy.run_path(str(ROOT / "tools" / "index_readme.py"))["index_readme"]
    text = "![run](docs/run.svg) [glossary](docs/glossary.md) [part](#part) [torch](https://pytorch.org)"
    assert make(text, ROOT, "https://host.test/files/") == (
        "![run](https://host.test/files/docs/run.svg) [glossary](https://host.test/files/docs/glossary.md) "
        "[part](#part) [torch](https://pytorch.org)"
    )


def test_dir_lists_only_public_names():
    importlib.import_module("echelon.train.world")  # a submodule must not be listed
    assert dir(echelon) == sorted(echelon.__all__)
    assert all(name == "__version__" or not name.startswith("_") for name in dir(echelon))
