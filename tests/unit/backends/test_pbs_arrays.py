"""Arrays on PBS: ranges for qsub, ids, scripts of elements, one encrypted environment. A fake qsub is on PATH."""

import errno
import os
from dataclasses import replace

import pytest
from samples import GOLDEN, NASTY_RUN, RUN, plain

from echelon.backends.batch import array_run_by_variable
from echelon.backends.pbs import control
from echelon.backends.pbs.environment import agent_environ, decrypt_environ
from echelon.backends.pbs.hosts import submit_successor
from echelon.backends.pbs.query import array_id, element_id
from echelon.backends.pbs.script import ARRAY_INDEX, index_range, render, single_index
from echelon.backends.plain import render as render_plain
from echelon.errors import ConfigError
from echelon.events import Kind, append_event
from echelon.job import Policies, SchedulerOptions
from echelon.submission.submit import cancel, resume, start

JOB = plain("pbs")


def array(text, **booking):
    return replace(JOB, booking=SchedulerOptions(array=text, **booking))


@pytest.mark.parametrize(
    ("text", "value", "single"),
    [
        (None, None, None),
        ("0-9", "0-9", None),
        ("0-9%2", "0-9%2", None),
        ("0-20:5%3", "0-20:5%3", None),
        ("1,3,5", "1-5:2", None),
        ("4,2", "2-4:2", None),
        ("0-3,4", "0-4", None),
        ("7", None, "7"),
        ("7-7%1", None, "7"),
    ],
)
def test_indices_become_one_qsub_range(text, value, single):
    assert (index_range(text), single_index(text)) == (value, single)


def test_uneven_indices_are_refused_with_the_reason():
    with pytest.raises(ConfigError) as caught:
        index_range("1,2,5", "--array")
    assert str(caught.value) == (
        "error: --array 1,2,5 is not one range\n  from  --array\n"
        "  why   PBS takes FIRST-LAST or FIRST-LAST:STEP, so the indices must be evenly spaced\n"
        "  try   --array 1-5, or submit the indices in several arrays"
    )


@pytest.mark.parametrize(
    ("whole", "index", "one"), [("24[].pbs", 3, "24[3].pbs"), ("24[]", 0, "24[0]"), ("31.pbs", 3, "31.pbs")]
)
def test_the_id_of_an_element(whole, index, one):
    assert element_id(whole, index) == one
    assert array_id(one) == whole


def test_array_script_equals_golden_file():
    text = render(array("0-9%2"), array_run_by_variable(NASTY_RUN.path, ARRAY_INDEX))
    assert text == (GOLDEN / "pbs-array.sh").read_text()


def test_single_index_is_an_ordinary_job_with_its_index():
    lines = render(array("7"), RUN).splitlines()
    assert "export PBS_ARRAY_INDEX=7" in lines
    assert not [line for line in lines if line.startswith("#PBS -J")]


def test_agents_on_other_hosts_get_the_array_index():
    kept = agent_environ({"PBS_ARRAY_INDEX": "3", "PBS_JOBID": "31.pbs", "GREETING": "hello"})
    assert kept == {"PBS_ARRAY_INDEX": "3", "GREETING": "hello"}


# From a job to its runs


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """The runs of an array that was submitted; qsub and qdel leave what they were given."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "qsub": f'echo "$@" >>{tmp_path}/qsub; echo "$ECHELON_SEAL" >{tmp_path}/key; echo "24[].pbs"',
        "qdel": f'echo "$@" >>{tmp_path}/qdel',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GREETING", "hello")
    job = replace(array("1-3%2", dependency="afterok:7.pbs"), cwd=str(tmp_path))
    return start(job, {}, {}, tmp_path / "runs")


def test_an_array_is_one_submission_with_one_sealed_environment(runs, tmp_path):
    assert (tmp_path / "qsub").read_text() == f"-v ECHELON_SEAL {runs[0].job_script}\n"
    assert [run.read_native_id() for run in runs] == ["24[1].pbs", "24[2].pbs", "24[3].pbs"]
    assert len({run.sealed.stat().st_ino for run in runs}) == 1
    key = (tmp_path / "key").read_text().strip()
    assert {decrypt_environ(run.sealed.read_bytes(), key)["GREETING"] for run in runs} == {"hello"}
    assert "#PBS -J 1-3%2" in runs[2].job_script.read_text()
    assert control.submission_summary(array("1-3%2"), runs[0].read_native_id()) == "PBS job array 24[].pbs"


@pytest.fixture
def no_more_links(monkeypatch):
    """A file system that refuses hard links to these files, as one does above its limit."""

    def refuse(source, target, **_):
        raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), source, None, target)

    monkeypatch.setattr(os, "link", refuse)


def test_without_hard_links_each_element_has_copies(no_more_links, runs, tmp_path):
    key = (tmp_path / "key").read_text().strip()
    assert {decrypt_environ(run.sealed.read_bytes(), key)["GREETING"] for run in runs} == {"hello"}
    assert {run.sealed.stat().st_mode & 0o777 for run in runs} == {0o600}
    assert len({run.node_side.read_bytes() for run in runs}) == 1
    assert len({run.node_side.stat().st_ino for run in runs}) == 3


def test_the_successor_of_an_element_is_an_ordinary_job(runs, tmp_path):
    (tmp_path / "bin" / "qsub").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/qsub; echo 31.pbs\n')
    submit_successor(runs[1], {**os.environ, "PBS_JOBID": "24[2].pbs", "ECHELON_SEAL": "00"})
    assert (tmp_path / "qsub").read_text() == f"-v ECHELON_SEAL {runs[1].next_script}\n"
    assert runs[1].read_native_id() == "31.pbs"
    text = runs[1].next_script.read_text()
    assert "export PBS_ARRAY_INDEX=2\n" in text
    assert "#PBS -J" not in text
    assert "depend" not in text, "what the array waited for is over"
    submit_successor(runs[1], {**os.environ, "PBS_JOBID": "31.pbs"})
    assert (tmp_path / "qsub").read_text() == f"-W depend=afterany:31.pbs {runs[1].next_script}\n"


def test_one_run_of_an_array_is_resumed(runs, tmp_path):
    (tmp_path / "bin" / "qsub").write_text(f'#!/bin/sh\ncat "$3" >{tmp_path}/script; echo 32.pbs\n')
    append_event(runs[1].events, Kind.FINISHED, 0, outcome="failed", exit_code=1)
    resume(runs[1], {})
    assert runs[1].read_native_id() == "32.pbs"
    assert "export PBS_ARRAY_INDEX=2\n" in (tmp_path / "script").read_text()
    assert not runs[1].next_script.exists()
    assert runs[2].next_script.exists()


def test_one_run_of_an_array_is_cancelled(runs, tmp_path):
    assert cancel(runs[1])
    assert (tmp_path / "qdel").read_text() == "24[2].pbs\n"
    assert [run.sealed.exists() for run in runs] == [True, False, True]


# Plain scripts


def test_elements_of_a_plain_array_have_own_ports_and_folders():
    text = render_plain(array("0-3"), {})
    assert "#PBS -J 0-3\n" in text
    assert "id=$((${PBS_JOBID%%[!0-9]*} * 100000 + PBS_ARRAY_INDEX))\n" in text


def test_a_plain_array_cannot_requeue():
    with pytest.raises(ConfigError, match="cannot requeue"):
        render_plain(replace(array("0-3"), policies=Policies(requeues=1)), {})
