"""What stands between a launcher and a rank: who it finds out to be, and that it has the rank well in hand."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.errors import ConfigError
from echelon.node.desk import Desk, Place
from echelon.node.worker import ALONE, DESKS, card_of, environ_of, packed, place_of, told_by, unpacked
from running import wait_for

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
SRUN = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2", "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_STEP_NODELIST": "n[1-2]",
}  # fmt: skip
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}  # fmt: skip


@pytest.mark.parametrize(
    ("launcher", "environ"),
    [("torchrun", TORCHRUN), ("legacy", TORCHRUN), ("accelerate", TORCHRUN), ("srun", SRUN), ("mpirun", MPIRUN)],
)
def test_every_launcher_says_which_rank_it_is(launcher, environ):
    told = told_by(launcher, environ)
    assert (told.rank, told.world_size) == (3, 4)


def test_what_another_launcher_around_it_says_does_not_count():
    around = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert told_by("srun", {**around, **SRUN}).rank == 3
    assert told_by("mpirun", {**around, **MPIRUN}).rank == 3


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_a_launcher_of_all_nodes_that_says_nothing_is_refused(launcher):
    with pytest.raises(ConfigError, match=launcher):
        told_by(launcher, TORCHRUN)


def test_accelerate_says_nothing_of_a_single_process():
    assert told_by("accelerate", {}) == ALONE


def test_a_nonsense_rank_is_refused():
    with pytest.raises(ConfigError, match="RANK is 9"):
        told_by("torchrun", {**TORCHRUN, "RANK": "9"})


def test_on_each_node_the_folder_is_the_nodes_own():
    told = told_by("torchrun", TORCHRUN)
    assert place_of(told, {"ECHELON_NODE_DIR": "/tmp/echelon-b"}) == (Path("/tmp/echelon-b"), 1)


@pytest.mark.parametrize(
    ("rank", "place"), [(0, ("/a", 0)), (1, ("/a", 1)), (2, ("/b", 0)), (3, ("/b", 1))],
)  # fmt: skip
def test_of_all_nodes_the_folder_is_found_by_the_rank(rank, place):
    told = told_by("mpirun", {**MPIRUN, "OMPI_COMM_WORLD_RANK": str(rank)})
    folder, local_rank = place_of(told, {DESKS: packed(["/a", "/b"]), "ECHELON_NODE_DIR": "/other"})
    assert (str(folder), local_rank) == place


def test_a_world_that_does_not_fit_the_nodes():
    told = told_by("mpirun", {**MPIRUN, "OMPI_COMM_WORLD_SIZE": "5", "OMPI_COMM_WORLD_RANK": "4"})
    with pytest.raises(ValueError, match="beyond the 2 nodes"):
        place_of(told, {DESKS: packed(["/a", "/b"])})


@pytest.mark.parametrize(
    "folders", [["/dev/shm/echelon-gpt-ab"], ["/a", "/b"], ["/x/a", "/x/ab", "/x/a"], ["", "/ü"], ["/a"] * 3]
)
def test_folders_as_one_variable(folders):
    assert unpacked(packed(folders)) == folders


def test_the_folders_of_ten_thousand_nodes_fit():
    folders = [f"/dev/shm/echelon-{'x' * 64}-20260115-101500-7f3a-{number:08}" for number in range(10_000)]
    assert len(packed(folders)) < 131_000


def test_its_card():
    card = card_of(told_by("srun", SRUN), 1, {"ECHELON_GENERATION": "6"})
    assert (card["rank"], card["local_rank"], card["generation"], card["world_size"]) == (3, 1, 6, 4)
    assert card["said"] == "srun says rank 3 of 4"


def test_the_launchers_variables_stay_and_ours_are_added():
    order = {"env": {"RANK": "3", "LR": "1"}, "unless_set": {"OMP_NUM_THREADS": "1", "STORE": "False"}}
    environ = {"RANK": "1", "STORE": "True", "ACCELERATE_MIXED_PRECISION": "bf16", DESKS: "[]"}
    assert environ_of(order, environ) == {
        "RANK": "3", "LR": "1", "OMP_NUM_THREADS": "1", "STORE": "True", "ACCELERATE_MIXED_PRECISION": "bf16",
    }  # fmt: skip


class Rank:
    """A rank below a real worker, with the test as its agent."""

    def __init__(self, folder, script):
        self.desk = Desk(folder)
        self.reading, writing = os.pipe()
        order = {
            "is": "rank", "argv": ["sh", "-c", script], "cwd": str(folder), "umask": 0o022, "env": {"RANK": "0"},
            "unless_set": {}, "decided": {"rank": 0, "world_size": 1},
        }  # fmt: skip
        self.desk.open(0, {0: Place(rank=0, order=order, output=writing)})
        environ = {"ECHELON_NODE_DIR": str(folder), "ECHELON_GENERATION": "0", "RANK": "0", "WORLD_SIZE": "1"}
        self.worker = subprocess.Popen(
            [sys.executable, "-c", "import sys; from echelon.node.worker import main; sys.exit(main('torchrun'))"],
            env={**os.environ, **environ},
        )
        self.reports = []

    def listen(self):
        self.reports += self.desk.hear(self.desk.readable(0.05))
        return self.reports

    def report(self, kind):
        return wait_for(lambda: [r for r in self.listen() if r["is"] == kind], f"word that it has {kind}")[0]

    def said(self):
        return os.read(self.reading, 1 << 16).decode()


@pytest.fixture
def rank(tmp_path):
    ranks = []

    def start(script):
        ranks.append(Rank(tmp_path, script))
        return ranks[-1]

    yield start
    for one in ranks:
        one.desk.close()
        one.worker.wait(10)
        os.close(one.reading)


@pytest.mark.parametrize(
    ("script", "code", "shown"), [("exit 0", 0, 0), ("exit 75", 75, 75), ("kill -KILL $$", -9, 137)]
)
def test_the_true_code_is_told_at_once_and_the_worker_stays_until_it_is_let_go(rank, script, code, shown):
    one = rank(script)
    assert one.report("exited")["code"] == code
    with pytest.raises(subprocess.TimeoutExpired):
        one.worker.wait(0.3)
    one.desk.let_go()
    assert one.worker.wait(10) == shown


def test_output_goes_to_the_pipe_and_variables_are_there(rank):
    one = rank('echo "rank $RANK"; echo oops >&2')
    one.report("exited")
    assert one.said() == "rank 0\noops\n"


def test_a_signal_that_is_ordered_reaches_the_rank(rank):
    one = rank("trap 'echo heard; exit 3' USR2; echo ready; while :; do sleep 0.01; done")
    one.report("started")
    assert one.said() == "ready\n"
    one.desk.signal([0], signal.SIGUSR2, group=False)
    assert one.report("exited")["code"] == 3
    assert one.said() == "heard\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_what_a_scheduler_sends_to_everyone_does_not_end_the_worker(rank, signum):
    one = rank("read line < /dev/zero; sleep 600")
    one.report("started")
    os.kill(one.worker.pid, signum)
    one.desk.signal([0], signal.SIGKILL, group=True)
    assert one.report("exited")["code"] == -signal.SIGKILL


def test_when_its_agent_is_gone_nothing_is_left(rank):
    one = rank("setsid sleep 600 & echo $!; sleep 600")
    pid = one.report("started")["pid"]
    daemon = int(one.said())
    one.desk.close()
    assert one.worker.wait(10) == 137
    assert [left for left in (pid, daemon) if Path(f"/proc/{left}").exists()] == []


def test_a_killed_worker_takes_its_rank_along(rank):
    one = rank("sleep 600")
    pid = one.report("started")["pid"]
    one.worker.kill()
    assert one.report("exited")["code"] == -signal.SIGKILL
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the rank to be gone")


def test_a_program_that_is_not_there(rank):
    one = rank("exec ./nowhere")
    assert one.report("exited")["code"] == 127


def test_nobody_at_the_desk(tmp_path):
    environ = {**os.environ, "ECHELON_NODE_DIR": str(tmp_path), "ECHELON_GENERATION": "0"}
    code = "import sys; from echelon.node.worker import main; sys.exit(main('torchrun'))"
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "no agent of echelon's is here for this rank" in result.stderr
