"""The node side as one file, run by a Python that sees nothing else of ours."""

import io
import subprocess
import sys
import zipfile

import pytest

from echelon.submission.bundle import node_side


@pytest.fixture(scope="module")
def pyz(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "echelon.pyz"
    path.write_bytes(node_side())
    return path


def names():
    with zipfile.ZipFile(io.BytesIO(node_side())) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def python(*argv):
    """Isolated: no site packages, no environment, no current folder."""
    return subprocess.run([sys.executable, "-I", "-S", *argv], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "argv",
    [(), ("bogus",), ("supervise",), ("supervise", "run", "extra"), ("agent", "run"), ("--help",)],
)
def test_bad_arguments_are_refused_with_a_sentence(pyz, argv):
    done = python(str(pyz), *argv)
    assert done.returncode == 1
    assert done.stderr == "echelon.pyz is started by echelon run; see echelon --help\n"


def test_every_module_in_it_needs_only_the_standard_library(pyz):
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names()
        if name.endswith(".py") and name != "__main__.py"
    )
    code = (
        f"import sys, importlib; sys.path.insert(0, {str(pyz)!r})\nfor name in {modules}: importlib.import_module(name)"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    assert "echelon.supervisor.loop" in modules


@pytest.mark.parametrize("folder", ["cli", "config", "submission", "observe", "__main__"])
def test_bundle_has_no_control_side_modules(folder):
    assert not [name for name in names() if name.startswith(f"echelon/{folder}")]


def test_every_module_is_there_once_as_source_and_once_compiled():
    listed = names()
    assert len(set(listed)) == len(listed)
    sources = {name for name in listed if name.endswith(".py")} - {"__main__.py"}
    assert {name for name in listed if name.endswith(".pyc")} == {f"{name}c" for name in sources}


def test_compiled_modules_are_used(pyz):
    code = f"import sys; sys.path.insert(0, {str(pyz)!r}); import echelon.node_side as entry; print(entry.__file__)"
    assert python("-c", code).stdout == f"{pyz}/echelon/node_side.pyc\n"


def test_bundle_is_reproducible():
    assert node_side() == node_side()
