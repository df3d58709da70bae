"""The parts that every backend has, and the rule that only `backends/` names a backend."""

import ast
from pathlib import Path

import pytest

import echelon
from echelon.backends import DEFAULT, REGISTRY, Backend, all_backends, backend, backends_supporting, detect_backend
from echelon.backends.hosts import ConnectBackHosts
from echelon.config.options import BY_KEY, OPTIONS
from echelon.errors import ConfigError

SOURCES = Path(echelon.__file__).parent
OF_BACKENDS = "backends/"
NOT_A_BACKEND = {("config/environment.py", "local")}
"""The beginning of a folder's name."""


@pytest.mark.parametrize("name", REGISTRY)
def test_a_backend_is_registered_by_its_own_name(name):
    assert isinstance(backend(name), Backend)
    assert backend(name).name == name


def test_unknown_backend_error_lists_known_backends():
    with pytest.raises(ConfigError, match="unknown scheduler 'flux'") as refused:
        backend("flux")
    assert refused.value.why == "this version of echelon has local, allocation, slurm, pbs, ssh"


class Half(Backend):
    name = "half"
    runs_script_here = True

    def render(self, job, run_dir):
        return f"{job} {run_dir}"


def test_incomplete_backend_cannot_be_created():
    with pytest.raises(TypeError, match=r"cancel.*hosts.*label.*query.*requeue_without_supervisor.*resolve.*submit"):
        Half()


def test_incomplete_hosts_cannot_be_created():
    with pytest.raises(
        TypeError, match=r"close.*end_agent.*end_late_agents.*listen_address.*requeue.*start_agent.*start_query"
    ):
        ConnectBackHosts()


def test_each_partial_setting_has_a_supporting_backend():
    assert [option.key for option in OPTIONS if option.for_some and not backends_supporting(option.key)] == []


@pytest.mark.parametrize("name", REGISTRY)
def test_supported_settings_are_marked_as_partial(name):
    assert [key for key in backend(name).supported_settings if not BY_KEY[key].for_some] == []


@pytest.mark.parametrize("name", REGISTRY)
def test_backend_with_arrays_has_index_variable_and_element_id(name):
    ours = backend(name)
    knows = bool(ours.array_index_variable) and type(ours).element_id is not Backend.element_id
    assert knows == ours.supports_setting("array")


def test_backends_with_a_scheduler_are_listed_first():
    assert [one.name for one in all_backends()] == ["slurm", "pbs", "local", "allocation", "ssh"]
    assert backends_supporting("interface") == ["slurm", "pbs", "allocation", "ssh"]


@pytest.mark.parametrize("inside", [True, False])
def test_the_default_is_detected_last(inside):
    assert detect_backend({}, use_allocation=inside)[0] == DEFAULT


def names_in(path):
    """The texts in a module that are names of backends, and the modules of backends that it imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and node.value in REGISTRY:
            yield node.value
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (module for module in modules if module in REGISTRY.values())


def test_no_module_outside_backends_names_a_backend():
    found = {
        (path.relative_to(SOURCES).as_posix(), name)
        for path in SOURCES.rglob("*.py")
        if not path.relative_to(SOURCES).as_posix().startswith(OF_BACKENDS)
        for name in names_in(path)
    }
    assert found - NOT_A_BACKEND == set()
