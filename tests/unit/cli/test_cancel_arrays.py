"""Ending all elements of an array, by Ctrl-C and by `echelon cancel`, with Slurm's tools as programs of ours."""

import os
import signal
import subprocess
import sys

import pytest

from running import DEADLINE_SECONDS

SQUEUE = 'cd {jobs} && for job in *; do [ -e "$job" ] && echo "$job|$(cat "$job")|N/A|None"; done; exit 0'
SCANCEL = """\
for job in "$@"; do :; done
echo "$job" >>{folder}/cancelled
if [ -e {folder}/refuse-$job ]; then echo "scancel: error: Access/permission denied" >&2; exit 1; fi
rm -f {jobs}/$job
"""
LISTED_LATER = """\
if [ ! -e {folder}/was-asked ]; then touch {folder}/was-asked; else
    for job in 77_0 77_1; do
        grep -qx "$job" {folder}/cancelled && [ ! -e {folder}/refuse-$job ] || echo "$job|RUNNING|N/A|None"
    done
fi 2>/dev/null
[ -e {jobs}/77_2 ] && echo "77_2|PENDING|N/A|None"
exit 0
"""


class Login:
    """A login node whose Slurm knows the jobs that are files in `jobs`, each with its state."""

    def __init__(self, folder):
        self.folder = folder
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        self.cancelled = folder / "cancelled"
        (folder / "bin").mkdir()
        self.install("sbatch", "echo 77")
        self.install("squeue", SQUEUE.format(jobs=self.jobs))
        self.install("scancel", SCANCEL.format(folder=folder, jobs=self.jobs))
        self.install("sacct", "exit 1")
        inherited = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        path = f"{folder / 'bin'}:/usr/bin:/bin"
        self.env = {"PATH": path, "HOME": str(folder), "ECHELON_ON": "slurm", **inherited}

    def install(self, tool, text):
        (self.folder / "bin" / tool).write_text(f"#!/bin/sh\n{text}\n")
        (self.folder / "bin" / tool).chmod(0o755)

    def states(self, **states):
        for index, state in states.items():
            (self.jobs / f"77{index}").write_text(state)

    def start(self, *args):
        argv = [sys.executable, "-m", "echelon", *args]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(argv, cwd=self.folder, env=self.env, **pipes)

    def __call__(self, *args):
        process = self.start(*args)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
        return process.returncode, out, err

    def runs(self):
        return sorted((self.folder / "runs").iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))

    def asked(self):
        return self.cancelled.read_text().split() if self.cancelled.exists() else []


@pytest.fixture
def login(tmp_path):
    return Login(tmp_path)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_follower_cancels_waiting_elements_first(login, signum):
    login.states(_0="RUNNING", _1="PENDING", _2="PENDING")
    follower = login.start("run", "--array", "0-2", "--", "true")
    said = ""
    while "2: queued" not in said:
        line = follower.stderr.readline()
        assert line, said
        said += line
    follower.send_signal(signum)
    follower.communicate(timeout=DEADLINE_SECONDS)
    assert login.asked() == ["77_1", "77_2", "77_0"]


@pytest.fixture
def lost(login):
    """The runs of an array whose first two elements Slurm does not list. Their supervisors have started and are gone."""
    code, _, err = login("submit", "--array", "0-2", "--", "true")
    assert code == 0, err
    login.states(_2="PENDING")
    for run in login.runs()[:2]:
        with (run / "events.jsonl").open("a") as events:
            events.write('{"time": 1.0, "kind": "started", "attempt": 0, "pid": 1}\n')
    return login.runs()


def test_lost_elements_are_cancelled_beside_the_others(login, lost):
    """Slurm does not list them in one answer, and does in the next."""
    login.install("squeue", LISTED_LATER.format(jobs=login.jobs, folder=login.folder))
    code, _, err = login("cancel", lost[0].name.rpartition("-")[0])
    assert (code, login.asked()) == (0, ["77_2", "77_0", "77_1"]), err


def test_a_refused_lost_element_does_not_stop_the_others(login, lost):
    login.install("squeue", LISTED_LATER.format(jobs=login.jobs, folder=login.folder))
    (login.folder / "refuse-77_0").touch()
    code, _, err = login("cancel", lost[0].name.rpartition("-")[0])
    assert (code, login.asked()) == (4, ["77_2", "77_0", "77_1"]), err
    assert f"{lost[0].name} was not cancelled: scancel: error: Access/permission denied" in err
    assert [(run / "cancel").exists() for run in lost] == [False, True, True]


def test_lost_elements_unknown_to_slurm_stay_lost(login, lost):
    code, _, err = login("cancel", lost[0].name.rpartition("-")[0])
    assert (code, login.asked()) == (0, ["77_2"]), err
    assert [(run / "cancel").exists() for run in lost] == [False, False, True]
    code, _, err = login("cancel", lost[0].name)
    assert code == 2
    assert "it is LOST" in err
