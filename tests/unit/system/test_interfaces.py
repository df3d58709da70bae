"""Addresses and interfaces of this machine."""

import socket

import pytest

from echelon.errors import EnvironmentProblem
from echelon.system import network


def test_an_interface_and_its_address():
    assert network.address_of("lo") == "127.0.0.1"
    assert network.interface_of("127.0.0.1") == "lo"
    assert network.interface_of("203.0.113.9") is None


def test_an_interface_that_is_not_there():
    with pytest.raises(EnvironmentProblem) as error:
        network.address_of("nothing0")
    assert "lo" in error.value.hint


def test_single_node_uses_loopback():
    assert network.own_address([], None) == "127.0.0.1"


def test_requested_interface_is_used():
    assert network.own_address(["n2"], "lo") == "127.0.0.1"


def test_peers_that_are_this_machine_lead_nowhere(monkeypatch):
    monkeypatch.setattr(network, "_default_route_address", lambda: None)
    with pytest.raises(EnvironmentProblem, match="has no address that the other nodes can reach") as error:
        network.own_address(["localhost"], None)
    assert "--interface" in error.value.hint


def test_unresolved_peers_fall_back_to_the_default_route(monkeypatch):
    monkeypatch.setattr(network, "resolve_host", lambda _: None)
    monkeypatch.setattr(network, "_default_route_address", lambda: "10.0.0.3")
    assert network.own_address(["n2"], None) == "10.0.0.3"


def test_a_route_to_a_peer_gives_the_address(monkeypatch):
    monkeypatch.setattr(network, "resolve_host", {"n2": "10.0.0.2"}.get)
    monkeypatch.setattr(network, "source_address", {"10.0.0.2": "10.0.0.1"}.get)
    assert network.own_address(["n9", "n2"], None) == "10.0.0.1"


@pytest.mark.parametrize(
    ("own_name_resolves_to", "told"),
    [("10.0.0.1", {}), ("127.0.1.1", "eth0"), ("192.168.0.1", "eth0"), (None, "eth0")],
)
def test_network_variables_are_set_only_if_needed(monkeypatch, own_name_resolves_to, told):
    monkeypatch.setattr(network, "resolve_host", lambda name: own_name_resolves_to if name == NAME else None)
    monkeypatch.setattr(network, "interface_of", lambda _: "eth0")
    expected = {"GLOO_SOCKET_IFNAME": told, "NCCL_SOCKET_IFNAME": f"={told}"} if told else {}
    assert network.network_variables("10.0.0.1", None) == expected


NAME = socket.gethostname()


def test_any_address_is_valid_on_one_machine():
    assert network.network_variables("127.0.0.1", None) == {}


def test_requested_interface_is_always_set():
    assert network.network_variables("10.0.0.1", "ib0")["NCCL_SOCKET_IFNAME"] == "=ib0"
