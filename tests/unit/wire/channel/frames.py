"""A pair of connected sockets, and the framing of messages."""

import socket

import pytest

from echelon.wire.channel import HEADER


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def frame(payload):
    return HEADER.pack(len(payload)) + payload
