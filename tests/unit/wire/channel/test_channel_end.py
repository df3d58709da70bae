"""The end of a channel: earlier messages arrive, and sending raises no error."""

import os

import pytest
from frames import frame

from echelon.wire.channel import Channel, ChannelClosed


def test_closed_connection_raises(ends):
    channel = Channel.from_socket(ends[1])
    ends[0].close()
    with pytest.raises(ChannelClosed, match="end of file"):
        channel.receive()


def test_data_sent_before_the_end_is_received(ends):
    channel = Channel.from_socket(ends[1])
    ends[0].send(frame(b'{"last": "words"}'))
    ends[0].close()
    assert channel.receive() == [{"last": "words"}]
    with pytest.raises(ChannelClosed):
        channel.receive()


def test_incomplete_message_before_the_end_closes_the_channel(ends):
    channel = Channel.from_socket(ends[1])
    ends[0].send(frame(b'{"last": "words"}')[:-3])
    ends[0].close()
    with pytest.raises(ChannelClosed):
        channel.receive()


def test_sending_to_a_closed_connection_is_not_an_error(ends):
    channel = Channel.from_socket(ends[1])
    ends[0].close()
    channel.send({"anyone": "there"})
    channel.flush()


def test_sending_ignores_any_write_error(ends):
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
