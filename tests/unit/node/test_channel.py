"""The channel on real sockets: strangers, torn messages, slow readers, and the end."""

import hmac
import os
import select
import socket
import struct
import threading
import time

import pytest

from echelon.node.channel import (
    HEADER,
    MAX_MESSAGE_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    Channel,
    ChannelClosed,
    Doorman,
    dial,
    interests,
)

TOKEN = b"t" * 32


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


@pytest.fixture
def pair(ends):
    return Channel.over(ends[0]), Channel.over(ends[1])


def frame(payload):
    return HEADER.pack(len(payload)) + payload


# Messages


def test_a_message_arrives_as_it_was_sent(pair):
    message = {"is": "Hello", "host": "gpu\u00fc", "numbers": [1, 2.5, None, True], "odd": "\udcff"}
    pair[0].send(message)
    assert pair[1].receive() == [message]


def test_messages_arrive_in_order_and_only_once(pair):
    for number in range(100):
        pair[0].send({"n": number})
    assert [message["n"] for message in pair[1].receive()] == list(range(100))
    assert pair[1].receive() == []


@pytest.mark.parametrize("cut", range(12))
def test_what_comes_before_the_prologue_is_passed_over(ends, cut):
    channel = Channel(ends[1].fileno(), ends[1].fileno(), prologue=b"begin")
    stream = b"motd bebeginX"[:-1] + frame(b"{}")
    ends[0].sendall(stream[:cut])
    assert channel.receive() == []
    ends[0].sendall(stream[cut:])
    assert channel.receive() == [{}]
    ends[0].sendall(frame(b'{"begin": 1}'))
    assert channel.receive() == [{"begin": 1}]


def test_a_babbler_who_never_begins_does_not_fill_the_memory(ends):
    channel = Channel(ends[1].fileno(), ends[1].fileno(), prologue=b"begin")
    for _ in range(50):
        ends[0].sendall(b"x" * 10_000)
        channel.receive()
    assert len(channel._incoming) < 100


def test_room_to_write_is_waited_for_only_while_something_is_unsent(pair):
    fd = pair[0].fileno()
    assert interests([pair[0]]) == {fd: select.POLLIN | select.POLLHUP}
    while not pair[0].unsent_bytes:
        pair[0].send({"text": "x" * 10_000})
    assert interests([pair[0]]) == {fd: select.POLLIN | select.POLLHUP | select.POLLOUT}


def test_nothing_has_arrived_while_nothing_was_sent(pair):
    assert pair[1].receive() == []


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9])
def test_a_torn_message_waits_for_its_rest(ends, cut):
    channel, data = Channel.over(ends[1]), frame(b'{"a": 1}')
    ends[0].send(data[:cut])
    assert channel.receive() == []
    ends[0].send(data[cut:])
    assert channel.receive() == [{"a": 1}]


def test_byte_by_byte_is_a_message_too(ends):
    channel, heard = Channel.over(ends[1]), []
    for byte in frame(b'{"a": 1}') + frame(b'{"b": 2}'):
        ends[0].send(bytes([byte]))
        heard += channel.receive()
    assert heard == [{"a": 1}, {"b": 2}]


def test_a_message_of_an_impossible_size_is_refused_at_its_header(ends):
    ends[0].send(struct.pack(">I", MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ChannelClosed, match="bytes"):
        Channel.over(ends[1]).receive()


@pytest.mark.parametrize("payload", [b"not json", b"", b"\xff\xfe\xfd", b'{"a": '])
def test_what_is_not_json_is_refused(ends, payload):
    ends[0].send(frame(payload))
    with pytest.raises(ChannelClosed, match="not a message"):
        Channel.over(ends[1]).receive()


@pytest.mark.parametrize("payload", [b"3", b"[]", b"null", b'"text"'])
def test_json_that_is_no_object_is_refused(ends, payload):
    ends[0].send(frame(payload))
    with pytest.raises(ChannelClosed):
        Channel.over(ends[1]).receive()


def test_a_large_message_reaches_a_slow_reader_whole(pair):
    sender, receiver = pair
    message = {"text": "x" * 3_000_000}
    sender.send(message)  # must not block: the other side has not read a byte yet
    heard = []
    for _ in range(10_000):
        heard += receiver.receive()
        if heard:
            break
        sender.flush()
    assert heard == [message]


def test_messages_behind_a_large_one_keep_their_order(pair):
    sender, receiver = pair
    sender.send({"text": "x" * 2_000_000})
    sender.send({"n": 1})
    sender.send({"n": 2})
    heard = []
    for _ in range(10_000):
        heard += receiver.receive()
        if len(heard) == 3:
            break
        sender.flush()
    assert heard[1:] == [{"n": 1}, {"n": 2}]


# The end


def test_the_end_of_the_other_side_is_told(ends):
    channel = Channel.over(ends[1])
    ends[0].close()
    with pytest.raises(ChannelClosed, match="end of file"):
        channel.receive()


def test_what_was_sent_before_the_end_is_still_heard(ends):
    channel = Channel.over(ends[1])
    ends[0].send(frame(b'{"last": "words"}'))
    ends[0].close()
    assert channel.receive() == [{"last": "words"}]
    with pytest.raises(ChannelClosed):
        channel.receive()


def test_half_a_message_before_the_end_is_the_end(ends):
    channel = Channel.over(ends[1])
    ends[0].send(frame(b'{"last": "words"}')[:-3])
    ends[0].close()
    with pytest.raises(ChannelClosed):
        channel.receive()


def test_sending_to_one_who_has_gone_is_no_error(ends):
    channel = Channel.over(ends[1])
    ends[0].close()
    channel.send({"anyone": "there"})
    channel.flush()


def test_sending_over_a_carrier_that_broke_in_any_other_way_is_no_error_either(ends):
    with open("/dev/full", "wb", buffering=0) as broken:  # noqa: PTH123
        Channel(ends[0].fileno(), broken.fileno()).send({"anyone": "there"})


def test_a_channel_over_two_pipes_works_as_over_ssh():
    there, back = os.pipe(), os.pipe()
    near, far = Channel(back[0], there[1]), Channel(there[0], back[1])
    near.send({"down": 1})
    far.send({"up": 2})
    assert (far.receive(), near.receive()) == ([{"down": 1}], [{"up": 2}])
    near.close()
    with pytest.raises(ChannelClosed):
        far.receive()
    far.close()


# The handshake


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
