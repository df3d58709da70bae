"""What is sent as text to any Python on any host."""

import ast
import hashlib
import inspect
import json
import subprocess
import sys

import pytest

from echelon.node.hosts import bootstrap
from echelon.node.hosts.bootstrap import LENGTH, MARK, has_torch, is_shared
from echelon.node.hosts.ssh_words import FIRST_WORD

SOURCE = inspect.getsource(bootstrap)
ASKED = {
    "run_id": "x-1", "run": "/nowhere", "token": "/nowhere/token", "digest": "", "cwd": "/", "script": "",
    "pythonpath": "", "patience": 10,
}  # fmt: skip


def frame(data):
    payload = data if isinstance(data, bytes) else json.dumps(data).encode()
    return LENGTH.pack(len(payload)) + payload


def test_an_old_python_can_read_it():
    ast.parse(SOURCE, feature_version=(3, 6))
    assert "import echelon" not in SOURCE
    assert "from echelon" not in SOURCE


@pytest.fixture
def start(tmp_path):
    def run(*frames, rest=b""):
        text = repr(SOURCE).encode() + b"\n" + b"".join(map(frame, frames)) + rest
        argv = [sys.executable, "-I", "-c", FIRST_WORD]
        env = {"TMPDIR": str(tmp_path), "SSH_CONNECTION": "10.0.0.9 5000 10.0.0.1 22"}
        return subprocess.run(argv, input=text, capture_output=True, timeout=30, check=False, env=env)

    return run


def test_it_says_what_there_is_and_leaves_with_the_connection(start, tmp_path):
    done = start(ASKED)
    before, mark, rest = done.stdout.partition(MARK)
    assert (done.returncode, before, mark) == (0, b"", MARK)
    assert LENGTH.unpack(rest[:4])[0] == len(rest) - 4
    report = json.loads(rest[4:])
    assert report["version"] == list(sys.version_info[:3])
    assert (report["shared"], report["cwd"], report["script"], report["address"]) == (False, True, True, "10.0.0.1")
    assert list(tmp_path.iterdir()) == []


def test_what_was_sent_is_run_from_a_folder_of_its_own(start, tmp_path):
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
def test_half_a_file_is_no_file(start, tmp_path, cut):
    """The connection ends while the node side is under way."""
    wanted = {"files": ["echelon.pyz"], "shared": False, "inside": ""}
    done = start(ASKED, wanted, rest=frame(b"print('never')")[:cut])
    assert b"never" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_torch_is_looked_for_where_ranks_will_look(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    assert has_torch(f"/nowhere:{tmp_path}")


def test_a_folder_is_shared_only_if_it_has_this_very_token(tmp_path):
    token = tmp_path / "token"
    assert not is_shared(str(token), hashlib.sha256(b"x").hexdigest())
    token.write_bytes(b"x")
    assert is_shared(str(token), hashlib.sha256(b"x").hexdigest())
    assert not is_shared(str(token), hashlib.sha256(b"y").hexdigest())


NODE_SH = b"""echo "$ECHELON_FOLDER" "$@" >&2; words=$1; shift; [ "$(cat <&"$6")" = "the brief" ] && echo heard >&"$7"; exit 78\n"""


def test_the_agent_is_taken_into_the_environment_by_node_sh_and_leaves_nothing(start, tmp_path):
    wanted = {"files": ["echelon.pyz", "node.sh"], "shared": False, "inside": "python9"}
    done = start(ASKED, wanted, b"", NODE_SH, rest=b"the brief")
    assert done.returncode == 78
    assert done.stdout.endswith(b"heard\n")
    folder, words, python, dash, program, remote, again, *ends = done.stderr.split()
    assert (words.decode(), python, dash, remote, again) == (
        f"{folder.decode()}/words",
        b"python9",
        b"-I",
        b"remote",
        folder,
    )
    assert program.endswith(b"/echelon.pyz")
    assert len(ends) == 2
    assert list(tmp_path.iterdir()) == []
