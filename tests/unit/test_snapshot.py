"""What of the working directory is sent along, and what stays."""

import io
import subprocess
import tarfile

import pytest

from echelon import snapshot
from echelon.errors import ConfigError
from echelon.job import Job, Script, ScriptKind
from echelon.snapshot import pack


def job(folder, target="train.py", kind=ScriptKind.FILE):
    return Job(name="x", script=Script(kind=kind, target=target), cwd=str(folder), python="python3")


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    for name in (
        "train.py", "src/model.py", ".env", ".env.local", ".env.example", "keys/id_rsa", "keys/server.pem", "runs/x/run.json",
        "__pycache__/a.pyc", ".venv/bin/python", "big.log",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "data").symlink_to("/datasets/c4")
    return folder


def names(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return sorted(tar.getnames())


PLAIN = [".env.example", "big.log", "data", "src/model.py", "train.py"]


def test_without_git_all_but_secrets_and_runs_are_sent(project):
    assert names(pack(job(project), project / "runs")) == PLAIN


def test_with_git_what_it_ignores_stays(project):
    (project / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    expected = sorted([".gitignore", *(name for name in PLAIN if name != "big.log")])
    assert names(pack(job(project), project / "runs")) == expected


def test_a_file_that_git_knows_and_that_is_gone_is_no_trouble(project):
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "train.py", "src"], cwd=project, check=True)
    (project / "src" / "model.py").unlink()
    assert "src/model.py" not in names(pack(job(project), project / "runs"))


def test_nothing_of_the_user_is_in_it_but_the_files(project):
    with tarfile.open(fileobj=io.BytesIO(pack(job(project), project / "runs"))) as tar:
        assert {(entry.uname, entry.uid) for entry in tar} == {("", 0)}


def test_too_much_is_refused(project, monkeypatch):
    monkeypatch.setattr(snapshot, "MOST_BYTES", 10)
    with pytest.raises(ConfigError, match="too much to send"):
        pack(job(project), project / "runs")


@pytest.mark.parametrize("target", ["../train.py", "/elsewhere/train.py", "src/../../train.py"])
def test_a_script_outside_would_be_missing(project, target):
    with pytest.raises(ConfigError, match="not in the working directory"):
        pack(job(project, target), project / "runs")
    pack(job(project, str(project / "train.py")), project / "runs")
    pack(job(project, target, ScriptKind.COMMAND), project / "runs")
