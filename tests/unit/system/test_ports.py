"""Ports on real sockets: bound, reserved, and reusable by a server."""

import socket

import pytest

from echelon.errors import EnvironmentProblem
from echelon.system import network

HERE = "127.0.0.1"


def listen(port, *, reuse):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
    try:
        sock.bind((HERE, port))
        sock.listen()
    except OSError:
        sock.close()
        raise
    return sock


@pytest.fixture
def taken():
    """A port that someone listens on."""
    with listen(0, reuse=False) as sock:
        yield sock.getsockname()[1]


def test_bind_without_range_takes_any_free_port():
    with network.bind(HERE, None) as sock:
        assert sock.getsockname()[0] == HERE
        assert sock.getsockname()[1] > 0


def test_only_one_address_is_bound():
    with network.bind(HERE, None) as sock, socket.socket() as other:
        other.bind(("127.0.0.2", sock.getsockname()[1]))


def test_simultaneously_requested_ports_differ():
    with network.bind(HERE, None) as one, network.bind(HERE, None) as other:
        assert one.getsockname() != other.getsockname()


def test_first_free_port_of_the_range_is_used(taken):
    with network.bind(HERE, f"{taken}-{min(taken + 50, 65535)}") as sock:
        assert taken < sock.getsockname()[1] <= taken + 50


def test_range_in_use_is_an_environment_problem(taken):
    with pytest.raises(EnvironmentProblem) as caught:
        network.bind(HERE, f"{taken}")
    assert caught.value.what == f"all ports {taken} are in use on {HERE}"
    assert caught.value.origin == f"--ports {taken}"
    assert "--ports" in caught.value.hint


def test_address_of_another_machine_is_an_environment_problem():
    with pytest.raises(EnvironmentProblem, match="cannot bind 203"):
        network.bind("203.0.113.7", None)


def test_held_port_allows_a_server_that_reuses_addresses():
    with network.bind(HERE, None) as sock:
        network.allow_reuse(sock)
        with (
            listen(sock.getsockname()[1], reuse=True) as server,
            socket.create_connection(server.getsockname()) as peer,
        ):
            server.accept()[0].close()
            assert peer.recv(1) == b""


def test_held_port_is_refused_to_other_processes():
    with network.bind(HERE, None) as sock:
        network.allow_reuse(sock)
        with pytest.raises(OSError, match="in use"):
            listen(sock.getsockname()[1], reuse=False)


def test_bound_port_is_refused_until_it_is_reusable():
    with network.bind(HERE, None) as sock, pytest.raises(OSError, match="in use"):
        listen(sock.getsockname()[1], reuse=True)


def test_two_that_are_held_at_once_are_two_and_let_servers_in():
    held = network.ReservedPorts()
    numbers = [held.reserve(HERE, None) for _ in range(2)]
    held.make_reusable()
    assert len(set(numbers)) == 2
    for number in numbers:
        listen(number, reuse=True).close()
        with pytest.raises(OSError, match="in use"):
            listen(number, reuse=False)
    held.release()
    listen(numbers[0], reuse=False).close()


def test_second_port_of_a_range_of_one_is_refused():
    with network.bind(HERE, None) as sock:
        number = sock.getsockname()[1]
    held = network.ReservedPorts()
    held.reserve(HERE, str(number))
    with pytest.raises(EnvironmentProblem, match="all ports"):
        held.reserve(HERE, str(number))
    held.release()
