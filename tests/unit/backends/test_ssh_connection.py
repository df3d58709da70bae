"""One ssh connection and its stderr, with a fake ssh."""

import os

import pytest

from echelon.backends.ssh.connection import MOST_OUTPUT_BYTES, MOST_STORED_BYTES, Connection
from running import wait_for

MORE = MOST_STORED_BYTES + 1_000_000


@pytest.fixture
def ssh():
    connections = []

    def start(script):
        connections.append(Connection(["sh", "-c", script], os.environ, {}, "gpu1"))
        return connections[-1]

    yield start
    for connection in connections:
        connection.process.kill()
        connection.process.wait()
        connection.close_channel()
        connection._error_file.close()


def stored(connection):
    return os.fstat(connection._error_file.fileno()).st_size


FLOOD = """
echo 'Permission denied' >&2
for round in 1 2 3; do
  yes | head -c {size} >&2
  until [ -e {folder}/$round ]; do sleep 0.02; done
done
"""


def test_stored_output_of_a_host_is_bounded(ssh, tmp_path, capfdbinary):
    connection = ssh(FLOOD.format(size=MORE, folder=tmp_path))
    for number in (1, 2, 3):
        wait_for(lambda: stored(connection) >= MORE, "more output than is stored")
        connection.relay_output()
        assert stored(connection) == 0
        (tmp_path / str(number)).touch()
    said = capfdbinary.readouterr().err
    assert said.startswith(b"[gpu1] Permission denied\n[gpu1] y\n")
    assert said.count(b"[gpu1] (output of more than 4194304 bytes was dropped)\n") == 3
    assert said.count(b"[gpu1] y\n") < 3 * MOST_OUTPUT_BYTES, "one piece each time"
    assert connection.error_output().startswith("Permission denied\n"), "the reason of a failed login"


def test_output_of_a_host_after_truncation_is_relayed(ssh, tmp_path, capfdbinary):
    go = tmp_path / "go"
    connection = ssh(f"head -c {MORE} /dev/zero >&2; until [ -e {go} ]; do sleep 0.02; done; echo more >&2")
    wait_for(lambda: stored(connection) == MORE, "more output than is stored")
    connection.relay_output()
    capfdbinary.readouterr()
    go.touch()
    connection.process.wait()
    connection.relay_output()
    assert capfdbinary.readouterr().err == b"[gpu1] more\n"
