"""A snapshot as it lies in a run directory: real files, a real git."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.job import Job, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.submission import snapshot
from echelon.submission.snapshot import link_snapshot, project_root, take_snapshot

IDENTITY = {
    "GIT_AUTHOR_NAME": "ada",
    "GIT_AUTHOR_EMAIL": "a@b",
    "GIT_COMMITTER_NAME": "ada",
    "GIT_COMMITTER_EMAIL": "a@b",
}


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        check=True,
        env={**os.environ, **IDENTITY},
        capture_output=True,
    )


def fill(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    fill(
        folder,
        "train.py",
        "src/model.py",
        ".env",
        "keys/server.pem",
        "__pycache__/a.pyc",
        ".venv/bin/python",
        "big.log",
    )
    return folder


@pytest.fixture
def run_dir(project):
    run = RunDir(project / "runs" / "x")
    run.create()
    return run


def job(folder, target="train.py", kind=ScriptKind.FILE, cwd=None, **more):
    script = Script(kind=kind, target=target)
    return Job(
        name="x",
        script=script,
        cwd=str(cwd or folder),
        python="python3",
        scheduler="local",
        snapshot=True,
        project=str(folder),
        **more,
    )


def taken(run_dir, project, **more):
    return take_snapshot(job(project, **more), run_dir, run_dir.path.parent)


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def committed(project):
    (project / ".gitignore").write_text("*.log\nruns/\n")
    git(project, "init", "-q")
    git(project, "add", "-A", "-f", "train.py", "src", ".env", ".gitignore")
    git(project, "commit", "-qm", "first")


# What is in it


def test_without_git_all_but_secrets_junk_and_runs(project, run_dir):
    result = taken(run_dir, project)
    assert names(run_dir.code) == ["big.log", "src/model.py", "train.py"]
    assert result.facts["left_out"] == {".env": "secret", "keys/server.pem": "secret"}
    assert any(".env, keys/server.pem; --set NAME=VALUE" in line for line in result.remarks)


def test_modules_left_out_are_all_named(project, run_dir):
    modules = [f"{name}/secrets.py" for name in "abcdef"]
    fill(project, *modules)
    result = taken(run_dir, project)
    assert {*modules} <= {*result.facts["left_out"]}
    assert any(f"not importable in the snapshot: {', '.join(modules)};" in line for line in result.remarks)


def test_git_snapshot_has_tracked_and_new_but_not_ignored_files(project, run_dir):
    committed(project)
    fill(project, "new.py", "gone.py")
    git(project, "add", "gone.py")
    (project / "gone.py").unlink()
    result = taken(run_dir, project)
    assert names(run_dir.code) == [".gitignore", "new.py", "src/model.py", "train.py"]
    assert any("ignored by git: big.log;" in line for line in result.remarks)


def test_project_is_the_repository_root_and_keeps_its_folders(project, run_dir):
    committed(project)
    assert project_root(project / "src") == project
    taken(run_dir, project, target="../train.py", cwd=project / "src")
    assert (run_dir.code / "src" / "model.py").exists()


def test_a_folder_without_files_is_there_if_ranks_start_in_it(project, run_dir):
    committed(project)
    (project / "empty").mkdir()
    taken(run_dir, project, target="../train.py", cwd=project / "empty")
    assert (run_dir.code / "empty").is_dir()


def test_submodules_and_clones_inside_are_in_it(project, run_dir, tmp_path):
    committed(project)
    other = tmp_path / "other"
    fill(other, "lib.py", "data.bin")
    (other / ".gitignore").write_text("*.bin\n")
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "first")
    git(project, "submodule", "add", "-q", str(other), "third/other")
    git(project, "clone", "-q", str(other), "clone")
    taken(run_dir, project)
    inside = names(run_dir.code)
    assert {"third/other/lib.py", "clone/lib.py", ".gitmodules"} <= set(inside)
    assert not [name for name in inside if ".git/" in name or name.endswith("/.git")]


def test_modes_and_times_are_kept(project, run_dir):
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    os.utime(project / "run.sh", (10, 20))
    taken(run_dir, project)
    status = (run_dir.code / "run.sh").stat()
    assert (status.st_mode & 0o777, status.st_mtime) == (0o755, 20)


def test_later_edit_in_place_does_not_change_the_snapshot(project, run_dir):
    taken(run_dir, project)
    with (project / "train.py").open("r+") as file:
        file.write("EDITED")
    assert (run_dir.code / "train.py").read_text() == "train.py"
    assert (run_dir.code / "train.py").stat().st_ino != (project / "train.py").stat().st_ino


def test_files_are_cloned_if_the_file_system_can(project, run_dir, monkeypatch):
    asked = []
    monkeypatch.setattr(snapshot.fcntl, "ioctl", lambda *words: asked.append(words[1]))
    taken(run_dir, project)
    assert asked == [0x40049409] * 3
    assert (run_dir.code / "train.py").read_text() == "", "the clone is all of the copy"


def test_links_are_kept_and_outside_ones_are_named(project, run_dir):
    (project / "data").symlink_to("/datasets/c4")
    (project / "src" / "same").symlink_to(project / "train.py")
    result = taken(run_dir, project)
    assert (run_dir.code / "data").readlink() == Path("/datasets/c4")
    assert (run_dir.code / "src" / "same").readlink() == Path("../train.py")
    assert "links to files outside the project stay links: data" in result.remarks


def test_pipe_is_not_copied(project, run_dir):
    os.mkfifo(project / "pipe")
    taken(run_dir, project)
    assert "pipe" not in names(run_dir.code)


# What is recorded


def test_commit_and_diff_are_recorded_without_secrets(project, run_dir):
    committed(project)
    (project / ".env").write_text("PASSWORD=hunter2")
    (project / "train.py").write_text("edited")
    facts = taken(run_dir, project).facts
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=project, capture_output=True, text=True, check=True).stdout
    assert (facts["commit"], facts["dirty"]) == (head.strip(), True)
    difference = run_dir.code_diff.read_text()
    assert "-train.py\n" in difference
    assert "+edited\n" in difference
    everything = b"".join(path.read_bytes() for path in run_dir.path.rglob("*") if path.is_file())
    assert b"hunter2" not in everything + json.dumps(facts).encode()


def test_a_renamed_secret_is_not_in_the_difference_either(project, run_dir):
    committed(project)
    git(project, "mv", ".env", "prod.env")
    taken(run_dir, project)
    assert b"+.env" not in run_dir.code_diff.read_bytes()


def test_clean_tree_is_recorded_as_clean(project, run_dir):
    committed(project)
    assert taken(run_dir, project).facts["dirty"] is False
    assert run_dir.code_diff.read_bytes() == b""


def test_project_without_commits_records_none(project, run_dir):
    git(project, "init", "-q")
    assert taken(run_dir, project).facts["commit"] is None


def test_unreadable_repository_is_copied_whole_with_a_message(project, run_dir):
    (project / ".git").mkdir()
    result = taken(run_dir, project)
    assert "not a git repository" in result.remarks[0]
    assert "train.py" in names(run_dir.code)


# What is refused or left out


def test_large_file_is_left_out_with_a_hint(project, run_dir):
    (project / "weights.bin").write_bytes(bytes(5000))
    result = taken(run_dir, project, snapshot_max="4K")
    assert "weights.bin" not in names(run_dir.code)
    assert "not in the snapshot, larger than 4 KiB: weights.bin; --snapshot-max SIZE includes them" in result.remarks


def test_too_much_in_all_is_refused(project, run_dir):
    for number in range(11):
        (project / f"{number}.bin").write_bytes(bytes(1000))
    with pytest.raises(ConfigError, match=r"too large: 10\.8 KiB") as caught:
        taken(run_dir, project, snapshot_max="1K")
    assert "the limit is 10 KiB" in caught.value.why


@pytest.mark.parametrize("target", ["../train.py", "/elsewhere/train.py", "src/../../train.py"])
def test_a_script_outside_would_be_missing(project, run_dir, target):
    with pytest.raises(ConfigError, match="not in the project"):
        taken(run_dir, project, target=target)
    taken(run_dir, project, target=target, kind=ScriptKind.COMMAND)


@pytest.mark.parametrize(("name", "why"), [("x.log", "git ignores it"), (".secrets", "its name looks like a secret")])
def test_a_script_that_is_not_taken_is_refused(project, run_dir, name, why):
    committed(project)
    fill(project, name)
    with pytest.raises(ConfigError, match="is not in the snapshot") as caught:
        taken(run_dir, project, target=name)
    assert caught.value.why == why


def test_a_file_that_cannot_be_read_is_named(project, run_dir, monkeypatch):
    opened = Path.open

    def refuse(self, *words):
        if self == project / "train.py":
            raise PermissionError(13, "Permission denied")
        return opened(self, *words)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(EnvironmentProblem, match=r"cannot read .*train\.py"):
        taken(run_dir, project)


# Arrays


def test_array_runs_have_linked_files_in_separate_folders(project, run_dir):
    (project / "link").symlink_to("train.py")
    taken(run_dir, project)
    other = RunDir(run_dir.path.with_name("y"))
    other.create()
    link_snapshot(run_dir.code, other.code)
    assert names(other.code) == names(run_dir.code)
    assert (other.code / "train.py").samefile(run_dir.code / "train.py")
    (other.code / "src" / "out.txt").write_text("mine")
    assert not (run_dir.code / "src" / "out.txt").exists()
