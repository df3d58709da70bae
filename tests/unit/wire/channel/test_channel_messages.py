"""Messages over real sockets: split, malformed, too large, and with a slow reader."""

import select
import struct

import pytest
from frames import frame

from echelon.wire.channel import MAX_MESSAGE_BYTES, Channel, ChannelClosed, poll_events


@pytest.fixture
def pair(ends):
    return Channel.from_socket(ends[0]), Channel.from_socket(ends[1])


def test_message_arrives_unchanged(pair):
    message = {"is": "Hello", "host": "gpu\u00fc", "numbers": [1, 2.5, None, True], "odd": "\udcff"}
    pair[0].send(message)
    assert pair[1].receive() == [message]


def test_messages_arrive_in_order_and_only_once(pair):
    for number in range(100):
        pair[0].send({"n": number})
    assert [message["n"] for message in pair[1].receive()] == list(range(100))
    assert pair[1].receive() == []


@pytest.mark.parametrize("cut", range(12))
def test_data_before_the_prologue_is_skipped(ends, cut):
    channel = Channel(ends[1].fileno(), ends[1].fileno(), prologue=b"begin")
    stream = b"motd bebeginX"[:-1] + frame(b"{}")
    ends[0].sendall(stream[:cut])
    assert channel.receive() == []
    ends[0].sendall(stream[cut:])
    assert channel.receive() == [{}]
    ends[0].sendall(frame(b'{"begin": 1}'))
    assert channel.receive() == [{"begin": 1}]


def test_text_without_prologue_does_not_fill_the_memory(ends):
    channel = Channel(ends[1].fileno(), ends[1].fileno(), prologue=b"begin")
    for _ in range(50):
        ends[0].sendall(b"x" * 10_000)
        channel.receive()
    assert len(channel._incoming) < 100


def test_pollout_is_requested_only_with_unsent_bytes(pair):
    fd = pair[0].fileno()
    assert poll_events([pair[0]]) == {fd: select.POLLIN | select.POLLHUP}
    while not pair[0].unsent_bytes:
        pair[0].send({"text": "x" * 10_000})
    assert poll_events([pair[0]]) == {fd: select.POLLIN | select.POLLHUP | select.POLLOUT}


def test_nothing_has_arrived_while_nothing_was_sent(pair):
    assert pair[1].receive() == []


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9])
def test_incomplete_message_waits_for_its_rest(ends, cut):
    channel, data = Channel.from_socket(ends[1]), frame(b'{"a": 1}')
    ends[0].send(data[:cut])
    assert channel.receive() == []
    ends[0].send(data[cut:])
    assert channel.receive() == [{"a": 1}]


def test_byte_by_byte_is_a_message_too(ends):
    channel, heard = Channel.from_socket(ends[1]), []
    for byte in frame(b'{"a": 1}') + frame(b'{"b": 2}'):
        ends[0].send(bytes([byte]))
        heard += channel.receive()
    assert heard == [{"a": 1}, {"b": 2}]


def test_too_large_message_is_rejected_at_its_header(ends):
    ends[0].send(struct.pack(">I", MAX_MESSAGE_BYTES + 1))
    with pytest.raises(ChannelClosed, match="bytes"):
        Channel.from_socket(ends[1]).receive()


@pytest.mark.parametrize("payload", [b"not json", b"", b"\xff\xfe\xfd", b'{"a": '])
def test_data_other_than_json_is_refused(ends, payload):
    ends[0].send(frame(payload))
    with pytest.raises(ChannelClosed, match="not a message"):
        Channel.from_socket(ends[1]).receive()


@pytest.mark.parametrize("payload", [b"3", b"[]", b"null", b'"text"'])
def test_json_that_is_not_an_object_is_refused(ends, payload):
    ends[0].send(frame(payload))
    with pytest.raises(ChannelClosed):
        Channel.from_socket(ends[1]).receive()


def test_large_message_reaches_a_slow_reader_completely(pair):
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
