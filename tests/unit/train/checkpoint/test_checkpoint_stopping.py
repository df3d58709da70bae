"""Stop requests by the agent's flag or, without an agent, by a signal; and the time left to save."""

import os
import signal
import time
from datetime import timedelta

import pytest

from echelon.job import Job, Policies, Resources, Script, ScriptKind
from echelon.run_dir import RunDir
from echelon.train.checkpoint.api import Checkpoint
from echelon.train.checkpoint.stopping import StopListener, seconds_left, short_notice_warning


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "ECHELON_RUN_DIR", "ECHELON_NODE_DIR", "JOB_STATE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def stop_listener():
    stop_listener = StopListener()
    yield stop_listener
    stop_listener.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_without_an_agent_requests_a_stop(stop_listener, signum):
    before = signal.getsignal(signum)
    stop_listener.listen()
    assert not stop_listener.is_stop_requested()
    os.kill(os.getpid(), signum)
    assert stop_listener.is_stop_requested()
    assert stop_listener.reason == signal.Signals(signum).name
    stop_listener.close()
    assert signal.getsignal(signum) is before


def test_signal_handled_by_the_script_is_left_to_it(stop_listener):
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        stop_listener.listen()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [1]
        assert not stop_listener.is_stop_requested()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def node_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    return tmp_path


def test_with_an_agent_only_its_flag_requests_a_stop(node_dir, stop_listener):
    stop_listener.listen()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not stop_listener.is_stop_requested()
    (node_dir / "notice").write_text(f"{time.time() + 30:.3f}\n")
    assert stop_listener.is_stop_requested()
    assert stop_listener.reason == "stop notice"
    assert 25 < seconds_left() < 31


def test_plain_script_stops_on_flag_or_signal(tmp_path, monkeypatch):
    monkeypatch.setenv("JOB_STATE", str(tmp_path))
    for signum in (None, signal.SIGTERM):
        stop_listener = StopListener()
        stop_listener.listen()
        assert not stop_listener.is_stop_requested()
        (tmp_path / "notice").touch() if signum is None else os.kill(os.getpid(), signum)
        assert stop_listener.is_stop_requested()
        assert stop_listener.reason == ("stop notice" if signum is None else "SIGTERM")
        assert seconds_left() is None
        (tmp_path / "notice").unlink(missing_ok=True)
        stop_listener.close()


@pytest.mark.parametrize("text", ["inf\n", "", "soon\n"])
def test_flag_without_a_time_gives_no_seconds_left(tmp_path, monkeypatch, text):
    monkeypatch.setenv("ECHELON_NODE_DIR", str(tmp_path))
    assert seconds_left() is None
    (tmp_path / "notice").write_text(text)
    assert seconds_left() is None


def test_short_notice_warning_uses_the_longest_save():
    assert short_notice_warning(2.0, None) is None
    assert short_notice_warning(2.0, 3.0) is None
    assert short_notice_warning(0.0, 0.5) is None
    assert short_notice_warning(20.0, 25.0) == "a save has taken 20.0 s, and 25 s are left; --notice 60s would be safe"


def test_stop_notice_saves_and_exits_with_requeue_code(tmp_path, monkeypatch, capsys):
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


def test_short_notice_is_reported_before_the_notice(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    job = Job(
        name="x",
        script=Script(kind=ScriptKind.FILE, target="x.py"),
        cwd="/",
        python="python3",
        scheduler="local",
        resources=Resources(time_limit=timedelta(hours=1)),
        policies=Policies(notice=timedelta(seconds=5)),
    )
    RunDir(tmp_path).write_description(job, {})
    monkeypatch.setenv("ECHELON_RUN_DIR", str(tmp_path))
    checkpoint = Checkpoint(tmp_path / "saved", every=None)
    checkpoint._saver.longest_seconds = 10.0
    checkpoint.after_step()
    checkpoint.after_step()
    checkpoint.close()
    said = "the notice may come too late: a save has taken 10.0 s, and 5 s will be left; --notice 30s would be safe"
    assert capsys.readouterr().err.count(said) == 1
