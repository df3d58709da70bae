"""The request to the worker server of a rank, against small servers that answer in all kinds of ways."""

import contextlib
import os
import socket
import threading

import pytest

from echelon.agent.evidence import flight_recorder
from echelon.agent.worker_server import socket_address

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
UNKNOWN = b"HTTP/1.1 404 Not Found\r\n\r\nno handler"


@contextlib.contextmanager
def server(path, answers):
    """Answers one connection after the other. Yields the requests."""
    requests = []
    with socket.socket(socket.AF_UNIX) as listener:
        with socket_address(path) as address:
            listener.bind(address)
        listener.listen()

        def serve():
            for answer in answers:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    requests.append(connection.recv(4096).decode())
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield requests
        thread.join(30)


def sends(data):
    return lambda connection: connection.sendall(data)


def ask(path, *answers, timeout=30.0):
    with server(path, answers) as requests:
        return flight_recorder(path, timeout), requests


def test_answer_is_the_body(tmp_path):
    body, requests = ask(tmp_path / "s", sends(OK))
    assert body == b"{}"
    assert requests[0].startswith("POST /handler/fr_trace_json HTTP/1.1\r\n")
    assert "Content-Length: 0\r\n" in requests[0]


def test_older_torch_has_another_handler(tmp_path):
    body, requests = ask(tmp_path / "s", sends(UNKNOWN), sends(OK))
    assert body == b"{}"
    assert requests[1].startswith("POST /handler/dump_nccl_trace_json ")


def test_unknown_handlers_give_nothing(tmp_path):
    assert ask(tmp_path / "s", sends(UNKNOWN), sends(UNKNOWN))[0] is None


@pytest.mark.parametrize("answer", [b"", b"garbage", b"HTTP/1.1", b"HTTP/1.1 x y\r\n\r\n{}", b"\r\n\r\n"])
def test_other_answers_give_nothing(tmp_path, answer):
    assert ask(tmp_path / "s", sends(answer))[0] is None


def test_endless_answer_gives_nothing(tmp_path):
    def endless(connection):
        while True:
            connection.sendall(b"x" * (1 << 20))

    assert ask(tmp_path / "s", endless)[0] is None


def test_silent_server_gives_nothing(tmp_path):
    over = threading.Event()
    with server(tmp_path / "s", [lambda _: over.wait(30)]):
        assert flight_recorder(tmp_path / "s", 0.05) is None
        over.set()


@pytest.mark.parametrize("timeout", [1.0, 0.0, -1.0])
def test_absent_server_gives_nothing(tmp_path, timeout):
    assert flight_recorder(tmp_path / "s", timeout) is None


def test_long_folder_is_reached(tmp_path):
    folder = tmp_path / ("long-" * 20) / ("folder-" * 20)
    folder.mkdir(parents=True)
    assert len(os.fsencode(folder)) > 200
    assert ask(folder / "server-0", sends(OK))[0] == b"{}"
