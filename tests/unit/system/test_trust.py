"""Whether another user could change a file that configures echelon."""

import os
import stat
import threading

import pytest

from echelon.errors import EnvironmentProblem
from echelon.system.trust import (
    FileEntry,
    UntrustedFile,
    check_runs_folder,
    check_trusted,
    read_trusted,
    runs_folder_problem,
    runs_folder_warning,
    trust_problem,
)

ME, SHARED_GROUP, PRIVATE, MALLORY = 1000, 100, 1000, 666
FILE, FOLDER = stat.S_IFREG, stat.S_IFDIR


def file(mode, uid=ME, gid=SHARED_GROUP, **more):
    return FileEntry(path="/p/echelon.toml", uid=uid, gid=gid, mode=FILE | mode, **more)


def folder(mode, uid=ME, gid=SHARED_GROUP, path="/p", **more):
    return FileEntry(path=path, uid=uid, gid=gid, mode=FOLDER | mode, **more)


def objection(*entries, uid=ME, private_gid=PRIVATE):
    return trust_problem(entries, uid=uid, private_gid=private_gid)


@pytest.mark.parametrize(
    "entries",
    [
        (file(0o644), folder(0o755)),
        (file(0o600), folder(0o700)),
        (file(0o444, uid=0), folder(0o755, uid=0)),
        (file(0o644), folder(0o755, uid=0)),
        (file(0o664, gid=PRIVATE), folder(0o775, gid=PRIVATE)),
        (file(0o644), folder(0o1777, uid=0, path="/tmp")),
        (file(0o644), folder(0o1775, uid=0, path="/scratch")),
        (file(0o644), folder(0o755), folder(0o2755, path="/p/sub")),
        (file(0o644, has_acl=True), folder(0o755, has_acl=True)),
    ],
)
def test_file_changeable_by_user_and_root_is_trusted(entries):
    assert objection(*entries) is None


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ((file(0o644, uid=MALLORY), folder(0o755)), "/p/echelon.toml belongs to uid 666, you are uid 1000"),
        ((file(0o644), folder(0o755, uid=MALLORY)), "/p belongs to uid 666, you are uid 1000"),
        ((file(0o644), folder(0o755), folder(0o755, uid=MALLORY, path="/p/sub")), "/p/sub belongs to uid 666"),
        ((file(0o600, uid=MALLORY), folder(0o1777, uid=0, path="/tmp")), "/p/echelon.toml belongs to uid 666"),
        ((file(0o644), folder(0o1777, uid=MALLORY, path="/tmp")), "/tmp belongs to uid 666"),
        ((file(0o666), folder(0o755)), "every user can write to /p/echelon.toml (mode 0666)"),
        ((file(0o644), folder(0o777)), "every user can write to /p (mode 0777)"),
        ((file(0o664), folder(0o755)), "group 100 can write to /p/echelon.toml (mode 0664)"),
        ((file(0o644), folder(0o2775)), "group 100 can write to /p (mode 2775)"),
        ((file(0o664, gid=0, uid=0), folder(0o755)), "group 0 can write to /p/echelon.toml"),
        ((file(0o664, gid=PRIVATE, has_acl=True), folder(0o755)), "group 1000 can write to /p/echelon.toml"),
        ((file(0o666, gid=PRIVATE), folder(0o755)), "every user can write"),
        # The sticky bit has no effect on a file.
        ((file(0o1666), folder(0o755)), "every user can write"),
    ],
)
def test_file_changeable_by_another_user_is_not_trusted(entries, why):
    assert objection(*entries).why.startswith(why)


def test_without_a_private_group_no_group_may_write():
    assert objection(file(0o664, gid=PRIVATE), private_gid=None) is not None


def test_root_does_not_trust_a_users_file():
    assert objection(file(0o644, uid=ME), uid=0, private_gid=0).why.endswith("belongs to uid 1000, you are uid 0")


def test_the_hint_is_one_chmod_for_all_that_is_writable():
    assert objection(file(0o664), folder(0o775)).hint == "chmod g-w /p/echelon.toml /p"
    assert objection(file(0o664), folder(0o777)).hint == "chmod go-w /p/echelon.toml /p"


def test_hint_for_a_foreign_file_is_a_copy():
    assert objection(file(0o644), folder(0o775, uid=0)).hint.startswith("copy it")
    assert objection(file(0o644, uid=MALLORY)).hint.startswith("copy it")


# With real files


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "echelon.toml"
    path.write_text("nodes = 2\n")
    path.chmod(0o644)
    return path


def test_a_trusted_file_is_read(path, tmp_path):
    assert read_trusted(path, [tmp_path]) == "nodes = 2\n"


def test_a_writable_file_or_folder_is_refused_with_origin(path, tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(UntrustedFile) as caught:
        read_trusted(path, [tmp_path], origin="--hostfile x")
    assert caught.value.origin == "--hostfile x"
    assert caught.value.hint == f"chmod go-w {tmp_path}"
    assert caught.value.exit_code == 3


def test_checked_file_is_the_file_that_is_read(path, tmp_path, monkeypatch):
    """The file is replaced between the check and the read."""
    replaced = tmp_path / "new"
    replaced.write_text("nodes = 99\n")
    blocking = os.set_blocking

    def swap(fd, value):
        replaced.replace(path)
        blocking(fd, value)

    monkeypatch.setattr(os, "set_blocking", swap)
    assert read_trusted(path, [tmp_path]) == "nodes = 2\n"
    assert path.read_text() == "nodes = 99\n"


def test_link_is_checked_by_its_target(path, tmp_path):
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    assert read_trusted(link, [tmp_path]) == "nodes = 2\n"
    path.chmod(0o666)
    with pytest.raises(UntrustedFile):
        read_trusted(link, [tmp_path])


def test_a_pipe_of_the_user_is_read_to_its_end(tmp_path):
    """--hostfile <(scontrol show hostnames)"""
    reader, writer = os.pipe()

    def write():
        with os.fdopen(writer, "w") as file:
            file.write("gpu1\n")

    thread = threading.Timer(0.1, write)
    thread.start()
    assert read_trusted(tmp_path / f"/dev/fd/{reader}", []) == "gpu1\n"
    thread.join()
    os.close(reader)


@pytest.mark.root
def test_a_fifo_of_another_user_does_not_block(tmp_path):
    fifo = tmp_path / "echelon.toml"
    os.mkfifo(fifo)
    os.chown(fifo, 12345, 12345)
    with pytest.raises(UntrustedFile, match="another user can change it"):
        read_trusted(fifo, [tmp_path])


@pytest.mark.root
def test_a_file_and_a_folder_of_another_user_are_refused(path, tmp_path):
    os.chown(path, 12345, -1)
    with pytest.raises(UntrustedFile):
        read_trusted(path, [tmp_path])
    os.chown(path, 0, -1)
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(UntrustedFile):
        check_trusted([path, tmp_path])


def test_a_missing_file_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_trusted(tmp_path / "nothing", [tmp_path])


# The folder for runs


def runs(mode, uid=ME, gid=SHARED_GROUP, **more):
    return folder(mode, uid=uid, gid=gid, path="/p/runs", **more)


@pytest.mark.parametrize(
    "entry",
    [runs(0o755), runs(0o1777, uid=0), runs(0o1777), runs(0o1770, uid=MALLORY), runs(0o775, gid=PRIVATE), runs(0o2755)],
)
def test_folder_with_runs_safe_from_others_is_accepted(entry):
    assert runs_folder_problem(entry, uid=ME, private_gid=PRIVATE) is None


@pytest.mark.parametrize(
    ("entry", "who"),
    [
        (runs(0o777), "every user"),
        (runs(0o2775), "group 100"),
        (runs(0o775, gid=PRIVATE, has_acl=True), "group 1000"),
        (runs(0o777, uid=0), "every user"),
    ],
)
def test_folder_with_runs_replaceable_by_others_is_refused(entry, who):
    found = runs_folder_problem(entry, uid=ME, private_gid=PRIVATE)
    assert found.why.startswith(f"{who} can write to /p/runs")
    assert ("chmod +t /p/runs" in found.hint) == (entry.uid == ME)
    assert "ECHELON_RUNS=DIR" in found.hint


def test_warning_names_owner_or_parent_that_can_replace_runs():
    above = (folder(0o755), folder(0o755, uid=0, path="/"))
    assert runs_folder_warning([runs(0o755), *above], uid=ME) is None
    assert runs_folder_warning([runs(0o1777, uid=0), *above], uid=ME) is None
    assert "/p/runs belongs to uid 666" in runs_folder_warning([runs(0o1777, uid=MALLORY), *above], uid=ME)
    assert "every user can write to /p (mode 0777)" in runs_folder_warning([runs(0o755), folder(0o777)], uid=ME)
    assert runs_folder_warning([runs(0o755), folder(0o1777, uid=0, path="/tmp")], uid=ME) is None
    assert runs_folder_warning([runs(0o755), folder(0o2775)], uid=ME) is None


def test_target_of_a_linked_runs_folder_is_checked(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "runs").symlink_to(real)
    assert check_runs_folder(tmp_path / "runs") is None
    real.chmod(0o777)
    with pytest.raises(EnvironmentProblem, match="another user can replace the runs in") as caught:
        check_runs_folder(tmp_path / "runs")
    assert f"chmod +t {real}" in caught.value.hint


def test_missing_runs_folder_is_accepted(tmp_path):
    assert check_runs_folder(tmp_path / "missing" / "runs") is None
