"""Where bench/verdicts.py runs a case: on local nodes, on the Slurm of the tests, or on hosts over ssh."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness import SCRIPTS, Trial

ROOT = Path(__file__).parents[1]
CASE_SECONDS = 180
END_SECONDS = 30
MEMORY_BYTES = 1500 << 20
SIZE = ("-N", "2", "--procs-per-node", "2")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a run has left behind."""

    error: Mapping[str, Any] = field(default_factory=dict)
    slow: Mapping[str, Any] = field(default_factory=dict)
    """The first event about a slow rank, with the fields of `error`."""
    fault_time: float | None = None
    """When the last rank ended its ordinary part."""
    verdict_time: float | None = None
    output: str = ""


class Place(Protocol):
    def run(self, case: Any, flags: list[str]) -> Record: ...


def read_record(folder: Path, stamps: Path, output: str) -> Record:
    runs = sorted(folder.glob("runs/*/events.jsonl"))
    if not runs:
        return Record(output=output)
    events = [json.loads(line) for line in runs[-1].read_text().splitlines()]
    verdicts = [event["time"] for event in events if event["kind"] in ("slow", "fault", "finished")]
    slow = [event for event in events if event["kind"] == "slow"]
    times = [float(text) for path in stamps.glob("stamps/*") if (text := path.read_text())]
    errors = sorted(runs[-1].parent.glob("attempt-*/error.json"))
    return Record(
        error=json.loads(errors[-1].read_text()) if errors else {},
        slow={"cause": slow[0]["reason"], "sentence": slow[0]["text"], "ranks": slow[0]["ranks"]} if slow else {},
        fault_time=max(times, default=None),
        verdict_time=verdicts[0] if verdicts else None,
        output=output,
    )


def command(backend: list[str], case: Any, flags: list[str]) -> list[str]:
    script = str(SCRIPTS / "verdicts" / case.script)
    return [sys.executable, "-m", "echelon", "run", *backend, *SIZE, *flags, script, *case.arguments]


def stamps_of(folder: Path) -> dict[str, str]:
    """The variable by which the ranks find the folder for their time stamps."""
    (folder / "stamps").mkdir(mode=0o777)
    (folder / "stamps").chmod(0o1777)
    return {"VERDICT_STAMPS": str(folder / "stamps"), "OMP_NUM_THREADS": "1"}


class LocalNodes:
    def run(self, case: Any, flags: list[str]) -> Record:
        trial = Trial()
        environ = {**trial.env, **stamps_of(trial.folder), "PYTHONPATH": str(ROOT / "src")}
        with prepared_need(case, trial.folder, environ) as prefix, (trial.folder / "output").open("wb") as output:
            argv = [*prefix, *command(["--on", "local"], case, flags)]
            process = subprocess.Popen(argv, env=environ, cwd=trial.folder, stdout=output, stderr=output)
            end_in_time(process)
            for pid in trial.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return read_record(trial.folder, trial.folder, (trial.folder / "output").read_text(errors="replace"))


def end_in_time(process: subprocess.Popen[bytes]) -> None:
    """Waits for the run. Cancels it if the verdict does not come."""
    try:
        process.wait(CASE_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        process.kill()


SMALL = 'mkdir -p {folder} && mount -t tmpfs -o {options} tmpfs {folder} && exec "$@"'


def unmet_need(case: Any, place: str) -> str:
    """Why this machine cannot run the case; empty if it can."""
    if case.need is None:
        return ""
    if place != "local" or os.geteuid() != 0:
        return f"needs {case.need.value}; local nodes as root provide it"
    if case.need.name == "MEMORY_LIMIT" and not os.access("/sys/fs/cgroup/memory/memory.limit_in_bytes", os.W_OK):
        return "needs a memory cgroup (v1) that can be changed"
    return ""


@contextlib.contextmanager
def prepared_need(case: Any, folder: Path, environ: dict[str, str]) -> Iterator[list[str]]:
    """The start of the command line that provides the need. Mounts end with the namespace of the processes."""
    need = None if case.need is None else case.need.name
    small = folder / "small"
    options = {"SMALL_FOLDER": "size=8m", "FEW_INODES": "size=8m,nr_inodes=40", "SMALL_SHM": "size=32m"}
    if need == "MEMORY_LIMIT":
        with memory_limit() as group:
            yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    elif need is not None:
        where = Path("/dev/shm") if need == "SMALL_SHM" else small
        environ["SMALL_FOLDER"] = str(small)
        text = SMALL.format(folder=where, options=f"{options[need]},mode=1777")
        yield ["unshare", "--mount", "sh", "-c", text, "sh"]
    else:
        yield []


@contextlib.contextmanager
def memory_limit() -> Iterator[Path]:
    group = Path(tempfile.mkdtemp(prefix="bench-", dir="/sys/fs/cgroup/memory"))
    try:
        (group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
        yield group
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


class ClusterNodes:
    """Nodes of the test cluster: Slurm, or plain hosts over ssh."""

    def __init__(self, cluster: Any, backend: list[str]) -> None:
        self._cluster = cluster
        self._backend = backend

    def run(self, case: Any, flags: list[str]) -> Record:
        folder = self._cluster.make_folder()
        stamps = self._cluster.make_folder(self._cluster.scratch)  # hosts over ssh share only this one
        environ = {**stamps_of(stamps), "PYTHONPATH": str(ROOT / "src")}
        argv = command(self._backend, case, flags)
        try:
            done = self._cluster.run("ctl", argv, cwd=folder, env=environ, check=False, timeout=CASE_SECONDS)
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired as error:
            output = str(error)
        self._cluster.cancel_all()
        self._cluster.end_leftovers()
        return read_record(folder, stamps, output)


@contextlib.contextmanager
def local_nodes() -> Iterator[Place]:
    yield LocalNodes()


@contextlib.contextmanager
def test_cluster(backend: list[str], **size: int) -> Iterator[Place]:
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "cluster")]
    from cluster import Cluster, missing

    if missing():
        sys.exit(f"no cluster here: {missing()}")
    with Cluster(**size) as cluster:
        yield ClusterNodes(cluster, backend)


def slurm_nodes() -> AbstractContextManager[Place]:
    return test_cluster(["--on", "slurm", "--cpus", "2"], nodes=2)


def ssh_hosts() -> AbstractContextManager[Place]:
    return test_cluster(["--on", "ssh", "--hosts", "h1,h2", "--python", sys.executable], nodes=0, ssh_hosts=2)


PLACES = {"local": local_nodes, "slurm": slurm_nodes, "ssh": ssh_hosts}
