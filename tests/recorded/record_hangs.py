"""Runs the scripts in hangs/ until they hang, collects the evidence as an agent does, and stores it in flight/.

    python tests/recorded/record_hangs.py [NAME ...]

The unit tests of echelon.diagnosis read the recordings. The version of torch is in their names.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from echelon.agent import worker_server  # noqa: E402
from echelon.agent.evidence import EvidenceCollector, RankSource  # noqa: E402
from echelon.agent.run_script import run_as_main  # noqa: E402
from echelon.codec import encode  # noqa: E402
from echelon.job import Script, ScriptKind  # noqa: E402
from echelon.system import processes  # noqa: E402

FOUR_RANKS = ("missing", "subgroup", "subgroup_first")
TWO_RANKS = (
    "condition",
    "data_loader",
    "exit_function",
    "exit_thread",
    "file_lock",
    "file_open",
    "group_order",
    "init",
    "lock",
    "past",
    "recv_all_wait",
    "spin",
)
HANG_SECONDS = 2.0
IDLE_SECONDS = 41.0


def be_a_rank(script: str, folder: Path) -> None:
    rank = os.environ["RANK"]
    worker_server.start_after_import(folder / f"server-{rank}")
    os.chdir(folder)
    run_as_main(
        Script(kind=ScriptKind.FILE, target=script, args=()), folder / f"error-{rank}", folder / f"stacks-{rank}"
    )


def record(name: str) -> None:
    size = 4 if name in FOUR_RANKS else 2 if name in TWO_RANKS else 3
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        ranks = [start_rank(name, rank, size, free_port(), folder) for rank in range(size)]
        try:
            wait_for(folder, ranks)
            collected = collect(ranks, folder)
        finally:
            for rank in ranks:
                for pid in (*processes.descendants(rank.pid), rank.pid):
                    processes.send_signal(pid, signal.SIGKILL)
                rank.wait()
        store(name, collected, folder)


PORTS: dict[str, str] = {}


def free_port() -> str:
    """The same one for all ranks of a recording."""
    if "now" not in PORTS:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            PORTS["now"] = str(probe.getsockname()[1])
    return PORTS["now"]


def start_rank(name: str, rank: int, size: int, port: str, folder: Path) -> subprocess.Popen[bytes]:
    environ = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "ARRIVED": str(folder / f"arrived-{rank}"),
        "OMP_NUM_THREADS": "1",
    }
    words = [sys.executable, __file__, "--rank", str(HERE / "hangs" / f"{name}.py"), str(folder)]
    return subprocess.Popen(words, env=environ)


def wait_for(folder: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 120
    while not all((folder / f"arrived-{rank}").exists() for rank in range(len(ranks))):
        if time.monotonic() > deadline:
            raise TimeoutError("some ranks did not come to the hang")
        time.sleep(0.1)
    time.sleep(HANG_SECONDS)


def collect(ranks: list[subprocess.Popen[bytes]], folder: Path) -> list[dict[str, Any]]:
    sources = [
        RankSource(
            rank=rank,
            host=f"n{rank // 2}",
            pid=process.pid,
            stacks_file=folder / f"stacks-{rank}",
            server=folder / f"server-{rank}",
            idle_seconds=IDLE_SECONDS,
        )
        for rank, process in enumerate(ranks)
        if process.poll() is None
    ]
    collector = EvidenceCollector(sources, seconds=10)
    while not collector.is_done:
        time.sleep(0.01)
    return [
        {
            "evidence": encode(one.evidence),
            "stacks": one.stacks_text,
            "flight": json.loads(one.flight_json or b"null"),
        }
        for one in collector.result
    ]


def store(name: str, collected: list[dict[str, Any]], folder: Path) -> None:
    import torch

    torch_version = torch.__version__.partition("+")[0]
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for rank in collected:
        for child in rank["evidence"]["children"]:
            child["process"]["command"] = "python"  # a fork server has machine paths in its command
    text = json.dumps({"torch": torch_version, "python": python, "ranks": collected}, indent=1)
    text = without_machine_paths(text, folder)
    path = HERE / "flight" / f"{name}-torch{torch_version}-py{python}.json"
    path.write_text(text + "\n")
    print(path.relative_to(HERE), path.stat().st_size)


def without_machine_paths(text: str, folder: Path) -> str:
    paths = sysconfig.get_paths()
    names = {
        str(HERE / "hangs"): "/home/user/project",
        str(SOURCE / "echelon"): "/run/echelon.pyz/echelon",
        __file__: "/run/echelon.pyz/__main__.py",
        paths["purelib"]: f"/venv/lib/python3.{sys.version_info[1]}/site-packages",
        paths["stdlib"]: f"/usr/lib/python3.{sys.version_info[1]}",
        sys.executable: "python",
        str(folder): "/scratch",
    }
    for path, name in names.items():
        text = text.replace(path, name)
    return text


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(sys.argv[2], Path(sys.argv[3]))
    else:
        for name in sys.argv[1:] or sorted(
            path.stem for path in (HERE / "hangs").glob("*.py") if path.stem != "common"
        ):
            PORTS.clear()
            record(name)
