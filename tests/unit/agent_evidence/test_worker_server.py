"""The start of torch's worker server, with a stand-in and with torch itself."""

import importlib
import json
import os
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest
from real_processes import running, until

from echelon.agent import worker_server
from echelon.agent.evidence import flight_recorder
from echelon.agent.worker_server import AfterImport, socket_address, start
from echelon.diagnosis.flight import parse_flight


@pytest.fixture
def bindings(monkeypatch):
    """Stands in for torch's bindings. Keeps the address of each server that was started."""
    module = types.ModuleType(worker_server.BINDINGS)
    module.addresses = []

    class Server:
        def __init__(self, address):
            os.write(2, b"Server listening\n")
            if Path(address).exists():
                raise RuntimeError(f"{address} already exists")
            module.addresses.append(address)
            Path(address).touch()

    module._WorkerServer = Server
    monkeypatch.setitem(sys.modules, worker_server.BINDINGS, module)
    return module


def test_server_starts_at_the_path_and_prints_nothing(bindings, tmp_path, capfd):
    assert start(tmp_path / "server-0")
    os.write(2, b"after\n")
    assert bindings.addresses == [str(tmp_path / "server-0")]
    assert capfd.readouterr().err == "after\n"


def test_long_path_is_reached_by_a_descriptor(bindings, tmp_path):
    folder = tmp_path / ("long-" * 30)
    folder.mkdir()
    assert start(folder / "server-0")
    assert bindings.addresses[0].startswith("/proc/self/fd/")
    assert (folder / "server-0").exists()


def test_longest_path_is_used_unchanged(tmp_path):
    with socket_address(Path("/" + "x" * 106)) as address:
        assert len(address) == 107


def test_torch_without_server_gives_false(bindings, tmp_path):
    del bindings._WorkerServer
    assert not start(tmp_path / "server-0")


def test_absent_torch_gives_false(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, worker_server.BINDINGS, None)
    assert not start(tmp_path / "server-0")


def test_server_that_cannot_listen_gives_false(bindings, tmp_path, capfd):
    (tmp_path / "server-0").write_text("a file of the user")
    assert not start(tmp_path / "server-0")
    assert (tmp_path / "server-0").read_text() == "a file of the user"
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"


def test_socket_of_the_last_generation_is_replaced(bindings, tmp_path):
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "server-0"))
    assert start(tmp_path / "server-0")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path. Importing it is what importing torch.distributed is."""
    folder = tmp_path / "made_up_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "inner.py").write_text("VALUE = 7\n")
    (folder / "broken.py").write_text("raise OSError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield "made_up_package"
    sys.meta_path[:] = before
    for name in [name for name in sys.modules if name.startswith("made_up_package")]:
        del sys.modules[name]


def hook(name):
    """Watches the import of the module. The list gets what the module looks like when the action runs."""
    seen = []
    finder = AfterImport(name, lambda: seen.append(vars(sys.modules[name]).get("VALUE")))
    sys.meta_path.insert(0, finder)
    return finder, seen


def test_action_runs_once_after_the_import(package):
    finder, seen = hook(f"{package}.inner")
    importlib.import_module(package)
    assert seen == []
    module = importlib.import_module(f"{package}.inner")
    importlib.reload(module)
    assert seen == [7]
    assert finder not in sys.meta_path


def test_imported_module_is_unchanged(package):
    hook(f"{package}.inner")
    module = importlib.import_module(f"{package}.inner")
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__loader__)
    assert module.__spec__.origin == module.__file__


def test_failed_import_raises_its_usual_error(package):
    _, seen = hook(f"{package}.broken")
    with pytest.raises(OSError, match="broken"):
        importlib.import_module(f"{package}.broken")
    assert seen == []


def test_absent_module_is_still_absent(package):
    _, seen = hook(f"{package}.absent")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.absent")
    assert seen == []


def test_server_of_a_loaded_torch_starts_at_once(bindings, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, worker_server.DISTRIBUTED, types.ModuleType(worker_server.DISTRIBUTED))
    worker_server.start_after_import(tmp_path / "server-0")
    assert bindings.addresses == [str(tmp_path / "server-0")]


COLD = """
import sys, time
from pathlib import Path
from echelon.agent.worker_server import start_after_import
start_after_import(Path(sys.argv[1]))
import torch
print("imported", flush=True)
time.sleep(600)
"""
WARM = """
import os, sys, time
from pathlib import Path
import torch.distributed
from echelon.agent.worker_server import start
if os.fork() == 0:
    start(Path(sys.argv[1]))
    print("imported", flush=True)
    sys.stdin.read()
    os._exit(0)
os.wait()
"""


@pytest.mark.torch
@pytest.mark.parametrize("program", [COLD, WARM], ids=["cold", "warm"])
def test_real_server_answers_without_a_process_group(tmp_path, program):
    path = tmp_path / "server-0"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running(sys.executable, "-c", program, path, **pipes) as process:
        assert process.stdout.readline() == b"imported\n"
        data = until(lambda: flight_recorder(path, 30.0))
        process.stdin.close()
        process.kill()
        assert process.stderr.read() == b""
    assert "version" in json.loads(data)
    assert parse_flight(data).collectives == ()
