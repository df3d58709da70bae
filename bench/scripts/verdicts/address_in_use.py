"""One rank listens on a port that is taken."""

import socket

from common import others_wait

others_wait()
first = socket.create_server(("127.0.0.1", 0))
second = socket.socket()
second.bind(first.getsockname())
