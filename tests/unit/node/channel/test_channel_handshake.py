"""The handshake on real sockets: who knows the token gets a channel, and strangers cost nothing."""

import hmac
import socket
import threading
import time

import pytest
from wire import frame

from echelon.node.channel import (
    NONCE_BYTES,
    PROOF_BYTES,
    ChannelClosed,
    Doorman,
    dial,
)

TOKEN = b"t" * 32


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def in_background(work):
    """The result of `work`, which may also be what it raised."""
    results = []

    def target():
        try:
            results.append(work())
        except (OSError, ChannelClosed) as error:
            results.append(error.with_traceback(None))  # so that a socket it leaves open is noticed here

    thread = threading.Thread(target=target)
    thread.start()
    return lambda: (thread.join(30), results[0])[1]


def eventually(ask):
    """The first answer that is something, asked for until a deadline."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.001)
    return pytest.fail("nothing came in time")


def admitted(doorman):
    return eventually(doorman.admit)


def test_two_sides_with_the_same_token_get_a_channel(listener):
    result = in_background(lambda: dial(*listener.getsockname(), TOKEN, 10))
    sock, _ = listener.accept()
    supervisor = admitted(Doorman(sock, TOKEN))
    agent = result()
    agent.send({"hello": 1})
    assert eventually(supervisor.receive) == [{"hello": 1}]
    agent.close()
    supervisor.close()


def test_an_agent_with_the_wrong_token_is_refused(listener):
    result = in_background(lambda: dial(*listener.getsockname(), b"w" * 32, 10))
    sock, _ = listener.accept()
    with sock, pytest.raises(ChannelClosed, match="token"):
        admitted(Doorman(sock, TOKEN))
    assert isinstance(result(), ChannelClosed)


def test_a_supervisor_with_the_wrong_token_is_refused(listener):
    """It waves everyone through, and still cannot prove that it knows the token."""
    result = in_background(lambda: dial(*listener.getsockname(), TOKEN, 10))
    sock, _ = listener.accept()
    with sock:
        sock.sendall(b"n" * NONCE_BYTES)
        sock.recv(PROOF_BYTES + NONCE_BYTES)
        sock.sendall(b"p" * PROOF_BYTES)
        answer = result()
    assert isinstance(answer, ChannelClosed)
    assert "does not know this run's token" in str(answer)


def test_the_agents_own_proof_sent_back_proves_nothing(listener):
    result = in_background(lambda: dial(*listener.getsockname(), TOKEN, 10))
    sock, _ = listener.accept()
    with sock:
        sock.sendall(b"n" * NONCE_BYTES)
        sock.sendall(sock.recv(PROOF_BYTES))
        assert isinstance(result(), ChannelClosed)


def test_a_supervisor_that_hangs_up_is_told(listener):
    result = in_background(lambda: dial(*listener.getsockname(), TOKEN, 10))
    listener.accept()[0].close()
    assert isinstance(result(), (ChannelClosed, ConnectionError))


def test_a_supervisor_that_is_not_there_is_an_os_error(listener):
    address = listener.getsockname()
    listener.close()
    with pytest.raises(OSError):
        dial(*address, TOKEN, 10)


def test_a_stranger_that_says_nothing_is_not_waited_for(ends):
    assert Doorman(ends[0], TOKEN).admit() is None


def test_half_a_proof_is_not_enough(ends):
    doorman = Doorman(ends[0], TOKEN)
    ends[1].send(b"p" * PROOF_BYTES)
    assert doorman.admit() is None


def test_a_stranger_that_leaves_is_told(ends):
    doorman = Doorman(ends[0], TOKEN)
    ends[1].close()
    with pytest.raises(ChannelClosed):
        doorman.admit()


def test_an_old_proof_does_not_open_a_new_door():
    nonces = []
    for _ in range(2):
        left, right = socket.socketpair()
        with left, right:
            Doorman(left, TOKEN)
            nonces.append(right.recv(NONCE_BYTES))
    assert nonces[0] != nonces[1]


def test_an_agent_that_dies_right_after_its_proof_is_told_and_not_a_crash():
    left, right = socket.socketpair()
    with left, right:
        doorman = Doorman(left, TOKEN)
        right.send(proof_of(TOKEN, right.recv(NONCE_BYTES)) + b"n" * NONCE_BYTES)
        right.close()
        with pytest.raises(ChannelClosed):
            doorman.admit()


def proof_of(token, nonce):
    return hmac.digest(token, b"agent" + nonce, "sha256")


def test_what_follows_the_proof_at_once_is_heard_on_the_channel(ends):
    doorman = Doorman(ends[0], TOKEN)
    nonce = ends[1].recv(NONCE_BYTES)
    ends[1].send(proof_of(TOKEN, nonce) + b"n" * NONCE_BYTES + frame(b'{"is": "Hello"}'))
    assert admitted(doorman).receive() == [{"is": "Hello"}]
