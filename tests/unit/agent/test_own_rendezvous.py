"""A script can open its own rendezvous besides the store of the run."""

import os
import sys
import types

import pytest

from echelon.agent.rendezvous import AGENT_STORE, allow_own_rendezvous


@pytest.fixture
def rendezvous(monkeypatch):
    """Stands in for torch's module: notes whether each store would be taken for the agent's."""
    module = types.SimpleNamespace(seen=[])
    module._create_c10d_store = lambda host, port, *_: module.seen.append((host, port, os.environ.get(AGENT_STORE)))
    monkeypatch.setitem(sys.modules, "torch.distributed.rendezvous", module)
    monkeypatch.setenv(AGENT_STORE, "True")
    return module


def test_only_the_main_port_is_the_agents_store(rendezvous):
    allow_own_rendezvous(29500)
    for host, port in (("10.0.0.1", 29500), ("n1", 29500), ("n1", 12345)):
        rendezvous._create_c10d_store(host, port, 0, 4, None)
    assert rendezvous.seen == [("10.0.0.1", 29500, "True"), ("n1", 29500, "True"), ("n1", 12345, "False")]
    assert os.environ[AGENT_STORE] == "True"


def test_failed_store_keeps_the_variable(rendezvous):
    def fail(*_):
        raise RuntimeError("address in use")

    rendezvous._create_c10d_store = fail
    allow_own_rendezvous(29500)
    with pytest.raises(RuntimeError):
        rendezvous._create_c10d_store("n1", 1, 0, 1, None)
    assert os.environ[AGENT_STORE] == "True"


def test_torch_without_the_function_is_not_patched(rendezvous):
    del rendezvous._create_c10d_store
    allow_own_rendezvous(29500)
