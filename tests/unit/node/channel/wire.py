"""Two ends of a connection, and what goes over it."""

import socket

import pytest

from echelon.node.channel import HEADER


@pytest.fixture
def ends():
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def frame(payload):
    return HEADER.pack(len(payload)) + payload
