"""The bootstrap, which any Python on any host runs."""

import ast
import hashlib
import inspect
import json
import shlex
import subprocess
import sys

import pytest

from echelon.backends.ssh import bootstrap
from echelon.backends.ssh.bootstrap import LENGTH, MARK, has_torch, is_shared
from echelon.backends.ssh.diagnose import BOOTSTRAP_LOADER
from echelon.errors import NOT_ENTERED

SOURCE = inspect.getsource(bootstrap)
ASKED = {
    "run_id": "x-1",
    "run": "/nowhere",
    "token": "/nowhere/token",
    "digest": "",
    "cwd": "/",
    "script": "",
    "pythonpath": "",
    "patience": 10,
}


def frame(data):
    payload = data if isinstance(data, bytes) else json.dumps(data).encode()
    return LENGTH.pack(len(payload)) + payload


def test_bootstrap_has_python_3_6_syntax_and_imports():
    tree = ast.parse(SOURCE, feature_version=(3, 6))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "json" in names
    assert not [name for name in names if name.split(".")[0] in ("", "echelon")]


ARGV = [sys.executable, "-I", "-c", BOOTSTRAP_LOADER]


def sent(*frames, rest=b""):
    return repr(SOURCE).encode() + b"\n" + b"".join(map(frame, frames)) + rest


@pytest.fixture
def start(tmp_path):
    def run(*frames, rest=b""):
        text = sent(*frames, rest=rest)
        env = {"TMPDIR": str(tmp_path), "SSH_CONNECTION": "10.0.0.9 5000 10.0.0.1 22"}
        return subprocess.run(ARGV, input=text, capture_output=True, timeout=30, check=False, env=env)

    return run


def test_bootstrap_reports_and_exits_with_the_connection(start, tmp_path):
    done = start(ASKED)
    before, mark, rest = done.stdout.partition(MARK)
    assert (done.returncode, before, mark) == (0, b"", MARK)
    assert LENGTH.unpack(rest[:4])[0] == len(rest) - 4
    report = json.loads(rest[4:])
    assert report["version"] == list(sys.version_info[:3])
    assert (report["shared"], report["cwd"], report["script"], report["address"]) == (False, True, True, "10.0.0.1")
    assert list(tmp_path.iterdir()) == []


def test_sent_files_run_from_a_private_folder(start, tmp_path):
    program = (
        b"import os, sys; print('noise'); read, write = map(int, sys.argv[3:])\n"
        b"text = f'{sys.argv[1:3]} {os.stat(sys.argv[2]).st_mode:o} {os.read(read, 99)} {sys.stdin.read()!r}'\n"
        b"os.write(write, text.encode())"
    )
    done = start(ASKED, {"files": ["echelon.pyz"], "shared": False, "inside": ""}, program, b"the brief")
    (folder,) = tmp_path.iterdir()
    said = done.stdout.partition(b"}")[2].decode()
    assert said == f"['remote', '{folder}'] 40700 {frame(b'the brief')} ''"
    assert b"noise" in done.stderr
    assert folder.name.startswith("echelon-x-1-")


@pytest.mark.parametrize("cut", [0, 3, 4, 10])
def test_incomplete_file_is_not_run_and_is_removed(start, tmp_path, cut):
    """The connection ends while the node side is under way."""
    wanted = {"files": ["echelon.pyz"], "shared": False, "inside": ""}
    done = start(ASKED, wanted, rest=frame(b"print('never')")[:cut])
    assert b"never" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_torch_is_searched_on_the_path_of_ranks(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    assert has_torch(f"/nowhere:{tmp_path}")


def test_folder_is_shared_only_with_the_same_token(tmp_path):
    token = tmp_path / "token"
    assert not is_shared(str(token), hashlib.sha256(b"x").hexdigest())
    token.write_bytes(b"x")
    assert is_shared(str(token), hashlib.sha256(b"x").hexdigest())
    assert not is_shared(str(token), hashlib.sha256(b"y").hexdigest())


COME = """
import os, socket
link = socket.socket(socket.AF_UNIX)
os.chdir(os.environ["ECHELON_FOLDER"])
link.connect("door")
heard = b""
while piece := link.recv(1 << 16):
    heard += piece
    link.sendall(piece)
link.sendall(b"heard %d of %d" % (len(set(heard)), len(heard)))
"""
NODE_SH = f"""echo "$ECHELON_FOLDER" "$@" >&2
ls /proc/self/fd | tr '\\n' ' ' >&2
{shlex.quote(sys.executable)} -ISc '{COME}'
exit 78
"""
ENTER = {"files": ["echelon.pyz", "node.sh"], "shared": False, "inside": "python9"}


def test_node_sh_starts_the_agent_and_folder_is_removed(start, tmp_path):
    done = start(ASKED, ENTER, b"", b'echo "$ECHELON_FOLDER" "$@" >&2; exit 78')
    assert done.returncode == 78
    folder, words, python, dash, program, *rest = done.stderr.decode().split()
    assert (words, python, dash, rest) == (f"{folder}/words", "python9", "-I", ["remote", folder])
    assert program.endswith("/echelon.pyz")
    assert list(tmp_path.iterdir()) == []


def test_enclosed_agent_gets_the_connection_from_a_socket(start, tmp_path):
    """More of it than any buffer holds, both ways, while nothing but the first three descriptors is passed on."""
    brief = bytes(range(256)) * 8192
    done = start(ASKED, ENTER, b"", NODE_SH.encode(), rest=brief)
    assert done.returncode == 78
    assert done.stdout.endswith(brief + b"heard 256 of 2097152")
    assert done.stderr.decode().splitlines()[1].split() == ["0", "1", "2", "3"], "3 is the folder that ls reads"
    assert list(tmp_path.iterdir()) == []


def test_end_of_the_agent_ends_an_open_connection(tmp_path):
    """Nothing more comes from the supervisor, which waits for the agent's last word."""
    once = NODE_SH.replace("piece := link.recv(1 << 16)", "not heard and (piece := link.recv(1))")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(ARGV, **pipes, env={"TMPDIR": str(tmp_path)}) as process:
        process.stdin.write(sent(ASKED, ENTER, b"", once.encode(), rest=b"x"))
        process.stdin.flush()
        assert process.stdout.read().endswith(b"xheard 1 of 1")
        assert process.wait(30) == 78
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("node_sh", "code", "blamed"),
    [
        (': >"$1"; exit 255', NOT_ENTERED, True),  # apptainer's word for any trouble of its own
        (': >"$1"; exit 1', NOT_ENTERED, True),
        ("exit 255", 255, False),  # the agent had begun, and the words were gone
        (': >"$1"; kill -9 $$', 137, False),
        (': >"$1"; exit 78', NOT_ENTERED, False),  # it has said why by itself
        (': >"$1"', 0, False),
    ],
)
def test_failed_runtime_and_dead_agent_are_distinct(start, node_sh, code, blamed):
    done = start(ASKED, ENTER, b"", node_sh.encode())
    assert (done.returncode, b"error: the command that enters it failed with exit code" in done.stderr) == (
        code,
        blamed,
    )
