"""The end of a channel: what is still heard, and that nobody stumbles over it."""

import os

import pytest
from wire import frame

from echelon.node.channel import (
    Channel,
    ChannelClosed,
)


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
