"""Being told to stop: by the agent's flag, or without an agent by a signal; and whether there is time."""

import os
import signal
import time
from datetime import timedelta

import pytest

from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.runtime.checkpoint.checkpoint import Checkpoint
from echelon.runtime.checkpoint.stopping import Alarm, lead_remark, seconds_left


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "ECHELON_RUN_DIR", "ECHELON_NODE_DIR", "JOB_STATE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def alarm():
    alarm = Alarm()
    yield alarm
    alarm.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_bare_signal_is_noted_and_kills_nobody(alarm, signum):
    before = signal.getsignal(signum)
    alarm.listen()
    assert not alarm.rings()
    os.kill(os.getpid(), signum)
    assert alarm.rings()
    assert alarm.reason == signal.Signals(signum).name
    alarm.close()
    assert signal.getsignal(signum) is before


def test_a_signal_that_the_script_handles_is_its_own(alarm):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        alarm.listen()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [1]
        assert not alarm.rings()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def node_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    return tmp_path


def test_with_an_agent_signals_are_left_alone_and_its_flag_counts(node_dir, alarm):
    alarm.listen()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not alarm.rings()
    (node_dir / "notice").write_text(f"{time.time() + 30:.3f}\n")
    assert alarm.rings()
    assert alarm.reason == "the notice"
    assert 25 < seconds_left() < 31


def test_in_a_plain_script_its_flag_counts_and_so_do_signals(tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_STATE", str(tmp_path))
    for signum in (None, signal.SIGTERM):
        alarm = Alarm()
        alarm.listen()
        assert not alarm.rings()
        (tmp_path / "notice").touch() if signum is None else os.kill(os.getpid(), signum)
        assert alarm.rings()
        assert alarm.reason == ("the notice" if signum is None else "SIGTERM")
        assert seconds_left() is None
        (tmp_path / "notice").unlink(missing_ok=True)
        alarm.close()


@pytest.mark.parametrize("text", ["inf\n", "", "soon\n"])
def test_a_flag_without_a_time_says_nothing_of_it(tmp_path, monkeypatch, text):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    assert seconds_left() is None
    (tmp_path / "notice").write_text(text)
    assert seconds_left() is None


def test_the_lead_is_judged_by_the_longest_save_so_far():
    assert lead_remark(2.0, None) is None
    assert lead_remark(2.0, 3.0) is None
    assert lead_remark(0.0, 0.5) is None
    assert lead_remark(20.0, 25.0) == "a save has taken 20.0 s, and 25 s are left; --notice 60s would be safe"


def test_it_saves_and_leaves_with_the_code_for_requeueing(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    checkpoint = Checkpoint(tmp_path / "saved", every=None)
    checkpoint.after_step()
    checkpoint._saver.longest_seconds = 100.0
    (tmp_path / "notice").write_text(f"{time.time() + 0.01:.3f}\n")
    with pytest.raises(SystemExit) as left:
        any(checkpoint.after_step() for _ in range(5000))
    checkpoint.close()
    assert left.value.code == 75
    assert checkpoint.saved == checkpoint.step
    assert "a save has taken 100.0 s, and 0 s are left; --notice 300s would be safe" in capsys.readouterr().err


def test_a_lead_that_is_too_short_is_said_long_before_it_matters(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    job = Job(
        name="x", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/", python="python3",
        resources=Resources(time_limit=timedelta(hours=1)), policies=Policies(notice=timedelta(seconds=5)),
    )  # fmt: skip
    RunDir(tmp_path).write_description(job, {})
    monkeypatch.setenv("ECHELON_RUN_DIR", str(tmp_path))
    checkpoint = Checkpoint(tmp_path / "saved", every=None)
    checkpoint._saver.longest_seconds = 10.0
    checkpoint.after_step()
    checkpoint.after_step()
    checkpoint.close()
    said = "the notice may come too late: a save has taken 10.0 s, and 5 s will be left; --notice 30s would be safe"
    assert capsys.readouterr().err.count(said) == 1
