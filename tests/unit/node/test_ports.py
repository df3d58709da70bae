"""Ports on real sockets: bound before they are published, held for the one who may have them."""

import socket

import pytest

from echelon.errors import EnvironmentProblem
from echelon.node import ports

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


def test_any_free_port_will_do():
    with ports.bind(HERE, None) as sock:
        assert sock.getsockname()[0] == HERE
        assert sock.getsockname()[1] > 0


def test_only_one_address_is_bound():
    with ports.bind(HERE, None) as sock, socket.socket() as other:
        other.bind(("127.0.0.2", sock.getsockname()[1]))


def test_two_asked_for_at_once_differ():
    with ports.bind(HERE, None) as one, ports.bind(HERE, None) as other:
        assert one.getsockname() != other.getsockname()


def test_the_first_free_port_of_the_range_is_taken(taken):
    with ports.bind(HERE, f"{taken}-{min(taken + 50, 65535)}") as sock:
        assert taken < sock.getsockname()[1] <= taken + 50


def test_a_range_that_is_taken_is_an_environment_problem(taken):
    with pytest.raises(EnvironmentProblem) as caught:
        ports.bind(HERE, f"{taken}")
    assert caught.value.what == f"every port of {taken} is taken on {HERE}"
    assert caught.value.origin == f"--ports {taken}"
    assert "--ports" in caught.value.hint


def test_an_address_that_is_not_ours_is_an_environment_problem():
    with pytest.raises(EnvironmentProblem, match="cannot bind 203"):
        ports.bind("203.0.113.7", None)


def test_a_held_port_lets_a_server_in_that_reuses_addresses():
    with ports.bind(HERE, None) as sock:
        ports.hold(sock)
        with (
            listen(sock.getsockname()[1], reuse=True) as server,
            socket.create_connection(server.getsockname()) as peer,
        ):
            server.accept()[0].close()
            assert peer.recv(1) == b""


def test_a_held_port_is_refused_to_anyone_else():
    with ports.bind(HERE, None) as sock:
        ports.hold(sock)
        with pytest.raises(OSError, match="in use"):
            listen(sock.getsockname()[1], reuse=False)


def test_a_port_that_is_bound_but_not_held_is_refused_to_everyone():
    with ports.bind(HERE, None) as sock, pytest.raises(OSError, match="in use"):
        listen(sock.getsockname()[1], reuse=True)


def test_two_that_are_held_at_once_are_two_and_let_servers_in():
    held = ports.Held()
    numbers = [held.take(HERE, None) for _ in range(2)]
    held.share()
    assert len(set(numbers)) == 2
    for number in numbers:
        listen(number, reuse=True).close()
        with pytest.raises(OSError, match="in use"):
            listen(number, reuse=False)
    held.release()
    listen(numbers[0], reuse=False).close()


def test_two_of_a_range_of_one():
    with ports.bind(HERE, None) as sock:
        number = sock.getsockname()[1]
    held = ports.Held()
    held.take(HERE, str(number))
    with pytest.raises(EnvironmentProblem, match="every port"):
        held.take(HERE, str(number))
    held.release()
