"""Requirements on the version of torch, and the options of its store."""

import pytest

from echelon.agent.torch_import import store_options, version_problem


@pytest.mark.parametrize("version", ["2.3.1+cu121", "2.10.0", "2.15.0+cpu", "3.0.0a0+git1234"])
def test_torch_is_new_enough(version):
    assert version_problem(version) is None


@pytest.mark.parametrize("version", ["2.2.2+cu121", "2.0.1", "1.13.1"])
def test_older_torch_is_refused_with_its_version(version):
    problem = version_problem(version)
    assert problem is not None
    assert problem.what == f"torch {version} is too old"
    assert "torch 2.3" in problem.hint


@pytest.mark.parametrize(
    ("version", "expected"), [("2.7.1+cu126", {"use_libuv": False}), ("2.8.0", {}), ("2.10.0", {})]
)
def test_store_uses_the_backend_that_takes_a_socket(version, expected):
    assert store_options(version) == expected
