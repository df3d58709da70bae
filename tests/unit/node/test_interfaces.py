"""Which address and which interface: by routes, on the loopback that every machine has."""

import socket

import pytest

from echelon.errors import EnvironmentProblem
from echelon.node import interfaces


def test_an_interface_and_its_address():
    assert interfaces.address_of("lo") == "127.0.0.1"
    assert interfaces.interface_of("127.0.0.1") == "lo"
    assert interfaces.interface_of("203.0.113.9") is None


def test_an_interface_that_is_not_there():
    with pytest.raises(EnvironmentProblem) as error:
        interfaces.address_of("nothing0")
    assert "lo" in error.value.hint


def test_alone_the_loopback_will_do():
    assert interfaces.own_address([], None) == "127.0.0.1"


def test_the_interface_that_was_asked_for_is_taken():
    assert interfaces.own_address(["n2"], "lo") == "127.0.0.1"


def test_peers_that_are_this_machine_lead_nowhere(monkeypatch):
    monkeypatch.setattr(interfaces, "_address_of_the_default_route", lambda: None)
    with pytest.raises(EnvironmentProblem, match="no way from") as error:
        interfaces.own_address(["localhost"], None)
    assert "--interface" in error.value.hint


def test_names_that_do_not_resolve_fall_back_to_the_default_route(monkeypatch):
    monkeypatch.setattr(interfaces, "resolved", lambda _: None)
    monkeypatch.setattr(interfaces, "_address_of_the_default_route", lambda: "10.0.0.3")
    assert interfaces.own_address(["n2"], None) == "10.0.0.3"


def test_a_route_to_a_peer_gives_the_address(monkeypatch):
    monkeypatch.setattr(interfaces, "resolved", {"n2": "10.0.0.2"}.get)
    monkeypatch.setattr(interfaces, "routed_address", {"10.0.0.2": "10.0.0.1"}.get)
    assert interfaces.own_address(["n9", "n2"], None) == "10.0.0.1"


@pytest.mark.parametrize(
    ("own_name_resolves_to", "told"),
    [("10.0.0.1", {}), ("127.0.1.1", "eth0"), ("192.168.0.1", "eth0"), (None, "eth0")],
)
def test_gloo_and_nccl_are_told_only_where_they_would_go_wrong(monkeypatch, own_name_resolves_to, told):
    monkeypatch.setattr(interfaces, "resolved", lambda name: own_name_resolves_to if name == NAME else None)
    monkeypatch.setattr(interfaces, "interface_of", lambda _: "eth0")
    expected = {"GLOO_SOCKET_IFNAME": told, "NCCL_SOCKET_IFNAME": f"={told}"} if told else {}
    assert interfaces.variables_for("10.0.0.1", None) == expected


NAME = socket.gethostname()


def test_on_one_machine_any_address_will_do():
    assert interfaces.variables_for("127.0.0.1", None) == {}


def test_an_interface_that_was_asked_for_is_always_told():
    assert interfaces.variables_for("10.0.0.1", "ib0")["NCCL_SOCKET_IFNAME"] == "=ib0"
