"""Two users in one project folder: their files do not break or change each other's commands."""

import json
import os

import pytest

from two_users import users

__all__ = ("users",)

pytestmark = pytest.mark.root

RUN = ("run", "--cold", "--", "echo", "hello")


@pytest.fixture
def shared_runs(users):
    """Each has one run in the folder that both share."""
    alice, bob = users
    (alice.folder / "runs").mkdir()
    (alice.folder / "runs").chmod(0o1777)
    for user in users:
        result = user(*RUN)
        assert result.returncode == 0, result.stderr
    by_owner = {path.stat().st_uid: path.name for path in (alice.folder / "runs").iterdir()}
    return by_owner[alice.uid], by_owner[bob.uid]


def test_commands_skip_unreadable_runs_of_others(users, shared_runs):
    _, bob = users
    hers, his = shared_runs
    listed = bob("ls")
    assert listed.returncode == 0, listed.stderr
    assert his in listed.stdout
    assert hers not in listed.stdout
    assert listed.stderr == f"echelon: skipped 1 run (Permission denied): {hers}\n"
    for command in ("status", "logs", "why", "checkpoints"):
        result = bob(command, "echo")
        assert "Permission" not in result.stderr, result.stderr
        assert result.returncode == 0, result.stderr
    assert "has already ended" in bob("cancel", "echo").stderr
    resumed = bob("resume", his)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(bob("ls", "--json").stdout)[0]["run_id"] == his
    result = bob("status", hers)
    assert result.returncode == 3
    assert f"cannot read the run {hers}" in result.stderr
    assert "Permission denied" in result.stderr
    result = bob("status", f"runs/{hers}")
    assert result.returncode == 3
    assert "belongs to another user" in result.stderr


def test_a_shared_folder_without_the_sticky_bit_is_refused(users, shared_runs):
    """Alice could rename a run of Bob and put one with other code in its place."""
    alice, bob = users
    _, his = shared_runs
    runs = bob.folder / "runs"
    runs.chmod(0o777)
    for words in (RUN, ("resume", his)):
        result = bob(*words)
        assert result.returncode == 3, result.stderr
        assert f"error: another user can replace the runs in {runs}" in result.stderr
        assert f"every user can write to {runs} (mode 0777)" in result.stderr
        assert "try   set ECHELON_RUNS=DIR" in result.stderr
    os.chown(runs, alice.uid, alice.uid)
    runs.chmod(0o1777)
    result = bob(*RUN)
    assert result.returncode == 0, result.stderr
    assert f"warning: {runs} belongs to uid {alice.uid}, which can replace your runs" in result.stderr


def test_a_remembered_link_to_an_unreadable_run_is_skipped(users):
    """The link is in the user's own index, and leads into a home that the user cannot enter any more."""
    alice, bob = users
    private = alice.own(alice.home / "runs")
    run = alice.own(private / "gpt-20260115-101500-7f3a")
    index = bob.own(bob.home / ".local" / "state" / "echelon" / "runs")
    for folder in (index, *list(index.parents)[:3]):
        folder.chmod(0o755)
    (index / run.name).symlink_to(run)
    result = bob("ls", cwd="/")
    assert result.returncode == 0
    assert f"skipped 1 run (Permission denied): {run.name}" in result.stderr
    assert (index / run.name).is_symlink()


def test_a_runs_folder_that_cannot_be_read_is_named(users):
    alice, bob = users
    alice.own(alice.folder / "runs").chmod(0o700)
    result = bob("ls")
    assert result.returncode == 0
    assert f"echelon: cannot read {bob.folder}/runs: Permission denied" in result.stderr


EVIL = 'setup = ["touch /tmp/evil"]\n'


def test_a_config_file_of_another_user_is_ignored(users):
    alice, bob = users
    alice.own(alice.folder / "echelon.toml", EVIL)
    mine = bob.own(bob.folder / "work")
    for folder in (bob.folder, mine):
        result = bob("render", "--", "true", cwd=folder)
        assert result.returncode == 0
        assert "touch" not in result.stdout
        assert (
            f"echelon: warning: ignored {bob.folder}/echelon.toml: {bob.folder}/echelon.toml belongs to uid 40011"
            in result.stderr
        )
    assert "settings from" not in result.stderr


def test_a_config_file_below_a_folder_of_another_user_is_ignored(users):
    alice, bob = users
    hers = alice.own(alice.folder / "hers")
    hers.chmod(0o777)
    bob.own(hers / "echelon.toml", "restarts = 3\n")
    result = bob("render", "--explain", "--", "true", cwd=hers)
    assert result.returncode == 0
    assert f"warning: ignored {hers}/echelon.toml: {hers} belongs to uid 40011" in result.stderr
    assert "restarts = 3" not in result.stdout


def test_own_config_file_is_used_and_named(users):
    _, bob = users
    mine = bob.own(bob.folder / "work")
    bob.own(mine / "echelon.toml", "restarts = 3\n")
    result = bob("render", "--explain", "--", "true", cwd=mine)
    assert result.stderr == f"echelon: settings from {mine}/echelon.toml\n"
    assert f"{mine}/echelon.toml:1 (restarts = 3)" in result.stdout


def test_named_files_of_another_user_are_refused(users):
    alice, bob = users
    hosts = alice.own(alice.folder / "hosts", "evil\n")
    site = alice.own(alice.folder / "site.toml", EVIL)
    for flags, path in ((("--on", "ssh", "--hostfile", hosts), hosts), (("--site", site), site)):
        result = bob("render", *flags, "--", "true")
        assert result.returncode == 3
        assert f"error: {path} is not used: another user can change it" in result.stderr
        assert f"from  {flags[-2]} {path}" in result.stderr


def test_a_user_file_and_index_of_another_user_are_ignored(users):
    alice, bob = users
    config = alice.own(alice.folder / "config")
    alice.own(alice.own(config / "echelon") / "config.toml", EVIL)
    state = alice.own(alice.folder / "state")
    alice.own(state / "echelon" / "runs")
    environ = {"XDG_CONFIG_HOME": str(config), "XDG_STATE_HOME": str(state)}
    result = bob("render", "--", "true", env=environ)
    assert "touch" not in result.stdout
    assert "warning: ignored" in result.stderr
    assert "ignored the index of runs" in bob("ls", env=environ).stderr
