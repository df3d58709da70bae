"""Runs by id, prefix, name or path, from any folder."""

import os

import pytest

from echelon.errors import ConfigError, EnvironmentProblem
from echelon.observe.find import add_to_index, find_run, index_folder, known_runs, latest_run, scan_runs
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


def test_latest_run_is_the_one_submitted_last(runs, environ):
    assert latest_run(environ).run_id == GPT_LATER
    os.utime(runs[0].description, (400, 400))
    assert latest_run(environ).run_id == BERT


def test_latest_run_is_none_without_runs(environ):
    with pytest.raises(ConfigError, match="no runs yet") as caught:
        latest_run(environ)
    assert environ["ECHELON_RUNS"] in caught.value.why


def test_no_folders_give_no_runs(environ):
    assert known_runs(environ) == []


def test_other_folders_are_not_listed_and_not_changed(runs, environ, tmp_path):
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    (tmp_path / "runs" / "events").mkdir()
    assert ids(known_runs(environ)) == [BERT, GPT, GPT_LATER]
    assert (tmp_path / "runs" / "notes.txt").exists()


def test_link_to_a_deleted_run_is_removed_from_the_index(runs, environ, tmp_path):
    link = index_folder(environ) / "gone-20260101-000000-0000"
    link.symlink_to(tmp_path / "gone")
    known_runs(environ)
    assert not link.is_symlink()


def test_link_of_the_user_in_the_runs_folder_is_kept(runs, environ, tmp_path):
    """./runs may well be the folder of another tool: it is tensorboard's default."""
    link = tmp_path / "runs" / "dataset"
    link.symlink_to(tmp_path / "elsewhere")
    known_runs(environ)
    assert link.is_symlink()


def test_index_is_in_the_xdg_state_folder():
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


def test_exact_id_takes_precedence_over_a_longer_one(environ, tmp_path):
    make(tmp_path / "runs", "x", 1)
    make(tmp_path / "runs", "x-2", 2)
    assert find_run("x", environ).run_id == "x"


def test_ambiguous_name_lists_the_matches(runs, environ):
    with pytest.raises(ConfigError, match="'gpt' matches 2 runs") as caught:
        find_run("gpt", environ)
    assert caught.value.why.split() == [GPT, GPT_LATER]
    assert caught.value.hint == f"the newest is {GPT_LATER}"


def test_unknown_name_gets_a_suggestion(runs, environ):
    with pytest.raises(ConfigError, match="no run matches") as caught:
        find_run("gtp-20260115-101500-7f3a", environ)
    assert caught.value.why == "searched 3 runs"
    assert GPT in caught.value.hint


def test_unknown_name_without_runs_gets_a_hint(environ):
    with pytest.raises(ConfigError) as caught:
        find_run("gpt", environ)
    assert "echelon ls" in caught.value.hint


@pytest.mark.parametrize("by", [lambda run: run.run_id, lambda run: str(run.path)])
def test_run_writable_by_others_is_not_used(runs, environ, by):
    runs[1].path.chmod(0o777)
    with pytest.raises(EnvironmentProblem):
        find_run(by(runs[1]), environ)


def test_a_run_of_others_does_not_hide_ones_own(runs, environ):
    runs[1].path.chmod(0o777)
    assert find_run("gpt", environ).run_id == GPT_LATER


def test_skipped_runs_are_counted_and_named_by_reason(runs, environ):
    for run in runs[:2]:
        run.path.chmod(0o777)
    found = scan_runs(environ)
    assert ids(found.runs) == [GPT_LATER]
    assert found.notes() == [f"skipped 2 runs (its mode is 0777 instead of 0700): {BERT}, {GPT}"]


def test_the_error_for_an_unknown_run_lists_skipped_runs(runs, environ):
    runs[0].path.chmod(0o777)
    with pytest.raises(ConfigError) as caught:
        find_run("nothing", environ)
    assert "searched 2 runs\nskipped 1 run" in caught.value.why


def test_many_skipped_runs_are_one_line(environ, tmp_path):
    for number in range(9):
        make(tmp_path / "runs", f"gpt-20260115-101500-000{number}", 1).path.chmod(0o777)
    (note,) = scan_runs(environ).notes()
    assert note.startswith("skipped 9 runs")
    assert note.endswith("gpt-20260115-101500-0004 and 4 more")


def test_an_index_that_others_can_write_is_ignored(runs, environ):
    index_folder(environ).chmod(0o777)
    found = scan_runs(environ)
    assert ids(found.runs) == [GPT, GPT_LATER]
    (note,) = found.notes()
    assert note.startswith("ignored the index of runs: every user can write to")
    assert note.endswith(f"try chmod go-w {index_folder(environ)}")


def test_index_of_another_user_is_not_written(runs, environ, monkeypatch):
    monkeypatch.setattr(os, "environ", environ)
    index_folder(environ).chmod(0o777)
    add_to_index(runs[1])
    assert not (index_folder(environ) / GPT).is_symlink()


def test_index_is_private_to_its_user(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", environ)
    run = make(tmp_path / "runs", GPT, 1)
    before = os.umask(0o002)
    add_to_index(run)
    os.umask(before)
    assert index_folder(environ).stat().st_mode & 0o777 == 0o700
    assert ids(known_runs(environ)) == [GPT]


def test_a_path_to_nothing_is_refused(environ, tmp_path):
    with pytest.raises(ConfigError, match="no run at"):
        find_run(str(tmp_path / "nothing"), environ)
