"""A rank reports its steps in its progress page, and the agent reads them."""

import itertools
import mmap

import pytest

import echelon
from echelon.train import progress
from echelon.train.progress import HEADER_BYTES, HEADER_CELLS, PAGE_BYTES, PAGE_CELLS, SLOTS, StepClock
from echelon.wire.node_dir import NodeDir, parse_step_marks


def test_page_is_mapped_once_for_many_reports(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(progress, "_page_path", None)
    (tmp_path / "progress-3").write_bytes(bytes(16))
    pages = []
    real = mmap.mmap
    monkeypatch.setattr(mmap, "mmap", lambda *args: pages.append(real(*args)) or pages[-1])
    for step in range(3):
        echelon.report(step)
    assert len(pages) == 1


@pytest.fixture
def node_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(progress, "_page_path", None)
    folder = NodeDir(tmp_path)
    folder.prepare(3)
    return folder


def steps_of(node_dir):
    return [mark.step for mark in parse_step_marks(node_dir.read_step_times(3))]


def test_reported_steps_are_read_with_their_times(node_dir):
    for step in range(5):
        echelon.report(step)
    assert node_dir.read_progress(3) == (4, None)
    marks = parse_step_marks(node_dir.read_step_times(3))
    assert [mark.step for mark in marks] == [1, 2, 3, 4], "the begin of the first one is unknown"
    assert all(one.ended == other.began for one, other in itertools.pairwise(marks))
    assert {mark.input_ns for mark in marks} == {-1}


def test_step_that_is_reported_again_does_not_end_another(node_dir):
    for step in (1, 2, 2, 2, 3):
        echelon.report(step, committed=1)
    assert steps_of(node_dir) == [2, 3]
    assert node_dir.read_progress(3) == (3, 1)


def test_report_inside_of_checkpoint_steps_does_not_end_a_step(node_dir):
    clock = progress.step_clock()
    clock.counts_steps = True
    for step in range(1, 4):
        echelon.report(step)
        clock.end_step(step)
    assert steps_of(node_dir) == [2, 3]


def test_last_steps_are_kept_with_their_input_wait(node_dir):
    clock = progress.step_clock()
    for step in range(100):
        clock.input_ns = 0
        assert clock.end_step(step) == step
    marks = parse_step_marks(node_dir.read_step_times(3))
    assert [mark.step for mark in marks] == list(range(100 - SLOTS, 100))
    assert {mark.input_ns for mark in marks} == {0}


def test_step_that_is_being_written_is_left_out():
    cells = [0] * PAGE_CELLS
    clock = StepClock(cells)
    for step in range(3):
        clock.end_step(step)
    cells[HEADER_CELLS + 4] = -1
    page = b"".join(cell.to_bytes(8, "little", signed=True) for cell in cells)
    assert [mark.step for mark in parse_step_marks(page)] == [2]


@pytest.mark.parametrize(
    "page",
    [b"", bytes(HEADER_BYTES), bytes(PAGE_BYTES - 1), bytes(PAGE_BYTES), bytes(index * 37 % 251 for index in range(9))],
)
def test_other_pages_have_no_steps(page):
    assert parse_step_marks(page) == []


def test_page_of_an_older_agent_gets_the_step_only(node_dir):
    node_dir.progress(3).write_bytes(bytes(HEADER_BYTES))
    echelon.report(7, committed=5)
    assert node_dir.read_progress(3) == (7, 5)
    assert node_dir.progress(3).stat().st_size == HEADER_BYTES


def test_restored_checkpoint_is_recorded_beside_the_steps(node_dir):
    assert node_dir.read_restored(3) == (None, "")
    progress.report_restored(20, "step-00000020.1")
    assert (node_dir.read_restored(3), node_dir.read_progress(3)) == ((20, "step-00000020.1"), (20, 20))
    node_dir.prepare(3)
    assert node_dir.read_restored(3) == (None, "")


@pytest.mark.parametrize("text", ["", "20", "x step-1", "20 ../../etc", "20 " + "a" * 500, "20 step-1\nmore"])
def test_other_text_is_no_restored_checkpoint(node_dir, text):
    node_dir.restored(3).write_text(text)
    assert node_dir.read_restored(3) == (None, "")


def test_new_generation_starts_without_steps(node_dir):
    for step in range(5):
        echelon.report(step)
    node_dir.prepare(3)
    assert node_dir.read_progress(3) == (None, None)
    assert steps_of(node_dir) == []


def test_clock_outside_of_a_run_records_nothing(monkeypatch):
    monkeypatch.delenv("ECHELON_NODE_DIR", raising=False)
    assert progress.step_clock().end_step(3) == 3
    echelon.report(4)
