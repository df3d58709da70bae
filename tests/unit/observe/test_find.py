"""Runs by id, prefix, name or path, from any folder."""

import os

import pytest

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.observe.find import find_run, index_folder, known_runs
from echelon.run_dir import RunDir

GPT = "gpt-20260115-101500-7f3a"
GPT_LATER = "gpt-20260116-101500-11aa"
BERT = "bert-large-20260114-090000-0c0c"


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home"), "ECHELON_RUNS": str(tmp_path / "runs")}


def make(folder, run_id, mtime):
    run = RunDir(folder / run_id)
    run.create()
    run.description.write_text("{}")
    os.utime(run.description, (mtime, mtime))
    return run


@pytest.fixture
def runs(environ, tmp_path):
    """Two in the folder for runs, one elsewhere that the index knows."""
    made = [make(tmp_path / "runs", GPT, 200), make(tmp_path / "runs", GPT_LATER, 300)]
    elsewhere = make(tmp_path / "elsewhere", BERT, 100)
    index_folder(environ).mkdir(parents=True)
    (index_folder(environ) / BERT).symlink_to(elsewhere.path)
    return [elsewhere, *made]


def ids(found):
    return [run.run_id for run in found]


def test_runs_are_listed_oldest_first_from_everywhere(runs, environ):
    assert ids(known_runs(environ)) == [BERT, GPT, GPT_LATER]


def test_a_run_that_is_found_twice_is_listed_once(runs, environ):
    (index_folder(environ) / GPT).symlink_to(runs[1].path)
    assert ids(known_runs(environ)) == [BERT, GPT, GPT_LATER]


def test_no_folders_at_all_mean_no_runs(environ):
    assert known_runs(environ) == []


def test_what_is_no_run_is_not_listed_and_left_alone(runs, environ, tmp_path):
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    (tmp_path / "runs" / "events").mkdir()
    assert ids(known_runs(environ)) == [BERT, GPT, GPT_LATER]
    assert (tmp_path / "runs" / "notes.txt").exists()


def test_a_link_to_a_run_that_was_deleted_is_removed_from_the_index(runs, environ, tmp_path):
    link = index_folder(environ) / "gone-20260101-000000-0000"
    link.symlink_to(tmp_path / "gone")
    known_runs(environ)
    assert not link.is_symlink()


def test_a_users_own_link_in_the_folder_for_runs_is_left_alone(runs, environ, tmp_path):
    """./runs may well be the folder of another tool: it is tensorboard's default."""
    link = tmp_path / "runs" / "dataset"
    link.symlink_to(tmp_path / "elsewhere")
    known_runs(environ)
    assert link.is_symlink()


def test_state_is_kept_where_the_system_keeps_such_things():
    assert str(index_folder({"HOME": "/home/me"})) == "/home/me/.local/state/echelon/runs"
    assert str(index_folder({"HOME": "/home/me", "XDG_STATE_HOME": "/s"})) == "/s/echelon/runs"


@pytest.mark.parametrize(
    ("word", "run_id"),
    [(GPT, GPT), ("gpt-20260115", GPT), ("gpt-20260116-1", GPT_LATER), ("b", BERT), ("bert-large", BERT)],
)
def test_a_run_is_found_by_id_prefix_and_name(runs, environ, word, run_id):
    assert find_run(word, environ).run_id == run_id


def test_a_run_is_found_by_its_path(runs, environ):
    assert find_run(str(runs[0].path), {"HOME": "/nowhere"}).path == runs[0].path


def test_a_run_is_found_from_inside(runs, environ, monkeypatch):
    monkeypatch.chdir(runs[0].path)
    assert find_run(".", environ).run_id == BERT
    (runs[0].path / "attempt-0").mkdir()
    monkeypatch.chdir(runs[0].path / "attempt-0")
    assert find_run("..", environ).run_id == BERT


def test_an_exact_id_wins_over_a_longer_one_that_begins_with_it(environ, tmp_path):
    make(tmp_path / "runs", "x", 1)
    make(tmp_path / "runs", "x-2", 2)
    assert find_run("x", environ).run_id == "x"


def test_two_that_match_are_named(runs, environ):
    with pytest.raises(ConfigError, match="'gpt' matches 2 runs") as caught:
        find_run("gpt", environ)
    assert caught.value.why.split() == [GPT, GPT_LATER]
    assert caught.value.hint == f"the newest is {GPT_LATER}"


def test_none_that_matches_gets_a_guess(runs, environ):
    with pytest.raises(ConfigError, match="no run matches") as caught:
        find_run("gtp-20260115-101500-7f3a", environ)
    assert caught.value.why == "looked through 3 runs"
    assert GPT in caught.value.hint


def test_none_at_all_says_where_to_look(environ):
    with pytest.raises(ConfigError) as caught:
        find_run("gpt", environ)
    assert "echelon ls" in caught.value.hint


@pytest.mark.parametrize("by", [lambda run: run.run_id, lambda run: str(run.path)])
def test_a_run_that_others_may_write_to_is_not_handed_out(runs, environ, by):
    runs[1].path.chmod(0o777)
    with pytest.raises(EnvironmentProblem):
        find_run(by(runs[1]), environ)


def test_a_path_to_nothing_is_refused(environ, tmp_path):
    with pytest.raises(ConfigError, match="no run at"):
        find_run(str(tmp_path / "nothing"), environ)
