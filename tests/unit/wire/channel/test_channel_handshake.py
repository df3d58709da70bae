"""The handshake on real sockets: only a peer with the token gets a channel."""

import hmac
import socket
import threading
import time

import pytest
from frames import frame

from echelon.wire.channel import NONCE_BYTES, PROOF_BYTES, ChannelClosed, Handshake, connect

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


def completed(handshake):
    return eventually(handshake.advance)


def test_two_sides_with_the_same_token_get_a_channel(listener):
    result = in_background(lambda: connect(*listener.getsockname(), TOKEN, 10))
    sock, _ = listener.accept()
    supervisor = completed(Handshake(sock, TOKEN))
    agent = result()
    agent.send({"hello": 1})
    assert eventually(supervisor.receive) == [{"hello": 1}]
    agent.close()
    supervisor.close()


def test_an_agent_with_the_wrong_token_is_refused(listener):
    result = in_background(lambda: connect(*listener.getsockname(), b"w" * 32, 10))
    sock, _ = listener.accept()
    with sock, pytest.raises(ChannelClosed, match="token"):
        completed(Handshake(sock, TOKEN))
    assert isinstance(result(), ChannelClosed)


def test_a_supervisor_with_the_wrong_token_is_refused(listener):
    """It waves everyone through, and still cannot prove that it knows the token."""
    result = in_background(lambda: connect(*listener.getsockname(), TOKEN, 10))
    sock, _ = listener.accept()
    with sock:
        sock.sendall(b"n" * NONCE_BYTES)
        sock.recv(PROOF_BYTES + NONCE_BYTES)
        sock.sendall(b"p" * PROOF_BYTES)
        answer = result()
    assert isinstance(answer, ChannelClosed)
    assert "does not have this run's token" in str(answer)


def test_reflected_proof_of_the_agent_is_refused(listener):
    result = in_background(lambda: connect(*listener.getsockname(), TOKEN, 10))
    sock, _ = listener.accept()
    with sock:
        sock.sendall(b"n" * NONCE_BYTES)
        sock.sendall(sock.recv(PROOF_BYTES))
        assert isinstance(result(), ChannelClosed)


def test_supervisor_that_closes_the_connection_raises(listener):
    result = in_background(lambda: connect(*listener.getsockname(), TOKEN, 10))
    listener.accept()[0].close()
    assert isinstance(result(), (ChannelClosed, ConnectionError))


def test_missing_supervisor_is_an_os_error(listener):
    address = listener.getsockname()
    listener.close()
    with pytest.raises(OSError):
        connect(*address, TOKEN, 10)


def test_silent_handshake_does_not_block(ends):
    assert Handshake(ends[0], TOKEN).advance() is None


def test_half_a_proof_is_not_enough(ends):
    handshake = Handshake(ends[0], TOKEN)
    ends[1].send(b"p" * PROOF_BYTES)
    assert handshake.advance() is None


def test_closed_handshake_raises(ends):
    handshake = Handshake(ends[0], TOKEN)
    ends[1].close()
    with pytest.raises(ChannelClosed):
        handshake.advance()


def test_every_handshake_has_a_new_nonce():
    nonces = []
    for _ in range(2):
        left, right = socket.socketpair()
        with left, right:
            Handshake(left, TOKEN)
            nonces.append(right.recv(NONCE_BYTES))
    assert nonces[0] != nonces[1]


def test_agent_that_dies_after_its_proof_closes_the_channel():
    left, right = socket.socketpair()
    with left, right:
        handshake = Handshake(left, TOKEN)
        right.send(proof_of(TOKEN, right.recv(NONCE_BYTES)) + b"n" * NONCE_BYTES)
        right.close()
        with pytest.raises(ChannelClosed):
            handshake.advance()


def proof_of(token, nonce):
    return hmac.digest(token, b"agent" + nonce, "sha256")


def test_data_directly_after_the_proof_is_received(ends):
    handshake = Handshake(ends[0], TOKEN)
    nonce = ends[1].recv(NONCE_BYTES)
    ends[1].send(proof_of(TOKEN, nonce) + b"n" * NONCE_BYTES + frame(b'{"is": "Hello"}'))
    assert completed(handshake).receive() == [{"is": "Hello"}]
