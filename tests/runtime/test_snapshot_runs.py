"""Ranks that run from a snapshot: later edits have no effect."""

import os
import subprocess

import pytest

from running import Run, wait_for

TRAIN = """
import os, pathlib, sys, time
here = pathlib.Path(os.environ["ECHELON_SUBMIT_DIR"])
print("waiting", flush=True)
while not (here / "go").exists():
    time.sleep(0.01)
import model, tools.metric
pathlib.Path("out.txt").write_text("relative")
print("ran", model.VERSION, tools.metric.VERSION, pathlib.Path("config.txt").read_text(), flush=True)
if os.environ["ECHELON_ATTEMPT"] == "0":
    sys.exit(75)
"""


@pytest.fixture
def project(echelon):
    folder = echelon.folder / "project"
    (folder / "exp").mkdir(parents=True)
    (folder / "lib" / "tools").mkdir(parents=True)
    write(folder, "old")
    (folder / "exp" / "train.py").write_text(TRAIN)
    (folder / ".gitignore").write_text("go\nout.txt\n")
    (folder / ".env").write_text("PASSWORD=hunter2")
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def write(folder, version):
    """In place: the inode stays, as with many an editor."""
    for name in ("exp/model.py", "lib/tools/metric.py"):
        (folder / name).write_text(f"VERSION = {version!r}\n")
    (folder / "exp" / "config.txt").write_text(version)


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_every_attempt_runs_the_snapshot_despite_edits(echelon, project, start):
    cold = ["--cold"] if start == "cold" else []
    path = os.pathsep.join(filter(None, [str(project / "lib"), echelon.env.get("PYTHONPATH")]))
    words = ["-N", "2", "--procs-per-node", "1", "--snapshot", "--requeues", "1", *cold, project / "exp" / "train.py"]
    result = echelon("submit", *words, cwd=project / "exp", env={"PYTHONPATH": path})
    assert result.returncode == 0, result.stderr
    assert "secrets: .env" in result.stderr
    run = Run(echelon, result.stdout.strip())
    wait_for(lambda: "waiting" in run.rank_log(0) and "waiting" in run.rank_log(1), "both ranks")
    write(project, "new")
    (project / "exp" / "train.py").write_text("raise SystemExit('edited')")
    (project / "exp" / "go").touch()
    assert run.wait()["outcome"] == "succeeded"
    for attempt in range(2):
        assert "ran old old old\n" in run.rank_log(1, attempt)
    assert (run.path / "code" / "exp" / "out.txt").exists()
    assert not (project / "exp" / "out.txt").exists()
    written = [path for path in run.path.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert written == []


def test_without_a_snapshot_the_new_code_runs(echelon, project):
    """So that the test above shows something."""
    words = ["--cold", "--requeues", "1", "train.py"]
    environ = {"PYTHONPATH": os.pathsep.join(filter(None, [str(project / "lib"), echelon.env.get("PYTHONPATH")]))}
    result = echelon("submit", *words, cwd=project / "exp", env=environ)
    run = Run(echelon, result.stdout.strip())
    wait_for(lambda: "waiting" in run.rank_log(0), "the rank")
    write(project, "new")
    (project / "exp" / "go").touch()
    run.wait()
    assert "ran new new new\n" in run.rank_log(0)


def test_resumed_run_uses_its_snapshot_or_reports_it_missing(echelon, project):
    script = project / "exp" / "once.py"
    script.write_text("print('old', flush=True); raise SystemExit(3)")
    assert echelon("run", "--cold", "--snapshot", script, cwd=project).returncode == 3
    script.write_text("print('new', flush=True)")
    run = echelon.only_run()
    again = echelon("resume", run.id)
    assert (again.returncode, "old" in again.stdout) == (3, True)
    (run.path / "code").rename(run.path / "away")
    gone = echelon("resume", run.id)
    assert gone.returncode == 3
    assert "the snapshot of the project is missing" in gone.stderr
