"""The worker between a launcher and a rank: detects its rank, registers, starts and ends the rank."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from echelon.agent.registration import Registration, ReservedPlace
from echelon.agent.worker import (
    NODE_FOLDERS,
    SINGLE_RANK,
    detect_rank,
    find_registration,
    make_check_in,
    merge_rank_environ,
    pack_folders,
    unpack_folders,
)
from echelon.errors import ConfigError
from echelon.placement import Placement, RankPlace
from echelon.wire.fds import RankEnded, RunRank, Signal
from echelon.wire.reports import Started
from running import wait_for

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "n[1-2]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
}


@pytest.mark.parametrize(
    ("launcher", "environ"),
    [("torchrun", TORCHRUN), ("legacy", TORCHRUN), ("accelerate", TORCHRUN), ("srun", SRUN), ("mpirun", MPIRUN)],
)
def test_rank_is_detected_under_every_launcher(launcher, environ):
    detected = detect_rank(launcher, environ)
    assert (detected.rank, detected.world_size) == (3, 4)


def test_variables_of_an_outer_launcher_are_ignored():
    around = {**TORCHRUN, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    assert detect_rank("srun", {**around, **SRUN}).rank == 3
    assert detect_rank("mpirun", {**around, **MPIRUN}).rank == 3


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_launcher_without_rank_variables_is_an_error(launcher):
    with pytest.raises(ConfigError, match=launcher):
        detect_rank(launcher, TORCHRUN)


def test_accelerate_sets_no_rank_for_a_single_process():
    assert detect_rank("accelerate", {}) == SINGLE_RANK


def test_a_nonsense_rank_is_refused():
    with pytest.raises(ConfigError, match="RANK is 9"):
        detect_rank("torchrun", {**TORCHRUN, "RANK": "9"})


def test_on_each_node_the_folder_is_the_nodes_own():
    detected = detect_rank("torchrun", TORCHRUN)
    assert find_registration(detected, {"ECHELON_NODE_DIR": "/tmp/echelon-b"}) == (Path("/tmp/echelon-b"), 1)


@pytest.mark.parametrize(
    ("rank", "place"),
    [(0, ("/a", 0)), (1, ("/a", 1)), (2, ("/b", 0)), (3, ("/b", 1))],
)
def test_of_all_nodes_the_folder_is_found_by_the_rank(rank, place):
    detected = detect_rank("mpirun", {**MPIRUN, "OMPI_COMM_WORLD_RANK": str(rank)})
    folder, local_rank = find_registration(
        detected, {NODE_FOLDERS: pack_folders(["/a", "/b"]), "ECHELON_NODE_DIR": "/other"}
    )
    assert (str(folder), local_rank) == place


def test_a_world_that_does_not_fit_the_nodes():
    detected = detect_rank("mpirun", {**MPIRUN, "OMPI_COMM_WORLD_SIZE": "5", "OMPI_COMM_WORLD_RANK": "4"})
    with pytest.raises(ValueError, match="does not fit on 2 nodes"):
        find_registration(detected, {NODE_FOLDERS: pack_folders(["/a", "/b"])})


@pytest.mark.parametrize(
    "folders", [["/dev/shm/echelon-gpt-ab"], ["/a", "/b"], ["/x/a", "/x/ab", "/x/a"], ["", "/ü"], ["/a"] * 3]
)
def test_folders_as_one_variable(folders):
    assert unpack_folders(pack_folders(folders)) == folders


def test_the_folders_of_ten_thousand_nodes_fit():
    folders = [f"/dev/shm/echelon-{'x' * 64}-20260115-101500-7f3a-{number:08}" for number in range(10_000)]
    assert len(pack_folders(folders)) < 131_000


def test_check_in_has_rank_and_description():
    check_in = make_check_in(detect_rank("srun", SRUN), 1, {"ECHELON_GENERATION": "6"})
    assert (check_in.rank, check_in.local_rank, check_in.generation, check_in.world_size) == (3, 1, 6, 4)
    assert check_in.description == "srun assigned rank 3 of 4"


def test_launcher_variables_stay_and_echelon_adds_its_own():
    order = run_rank(env={"RANK": "3", "LR": "1"}, defaults={"OMP_NUM_THREADS": "1", "STORE": "False"})
    environ = {"RANK": "1", "STORE": "True", "ACCELERATE_MIXED_PRECISION": "bf16", NODE_FOLDERS: "[]"}
    assert merge_rank_environ(order, environ) == {
        "RANK": "3",
        "LR": "1",
        "OMP_NUM_THREADS": "1",
        "STORE": "True",
        "ACCELERATE_MIXED_PRECISION": "bf16",
    }


PLACE = RankPlace(
    placement=Placement(
        run_id="r",
        attempt=0,
        generation=0,
        node_rank=0,
        nodes=1,
        procs_per_node=1,
        main_address="127.0.0.1",
        main_port=1,
        store_is_up=False,
        max_restarts=0,
    ),
    local_rank=0,
)


def run_rank(**fields):
    defaults = {"argv": ("true",), "cwd": "/", "umask": 0o022, "env": {}, "defaults": {}, "place": PLACE}
    return RunRank(**{**defaults, **fields})


class Rank:
    """A rank below a real worker, with the test as its agent."""

    def __init__(self, folder, script):
        self.desk = Registration(folder)
        self.reading, writing = os.pipe()
        order = run_rank(argv=("sh", "-c", script), cwd=str(folder), env={"RANK": "0"})
        expected = {"rank": 0, "world_size": 1}
        self.desk.open(0, {0: ReservedPlace(rank=0, order=order, output=writing, expected=expected)})
        environ = {"ECHELON_NODE_DIR": str(folder), "ECHELON_GENERATION": "0", "RANK": "0", "WORLD_SIZE": "1"}
        self.worker = subprocess.Popen(
            [sys.executable, "-c", "import sys; from echelon.agent.worker import main; sys.exit(main('torchrun'))"],
            env={**os.environ, **environ},
        )
        self.reports = []

    def listen(self):
        self.reports += self.desk.receive(self.desk.wait_readable(0.05))
        return self.reports

    def report(self, kind):
        return wait_for(lambda: [r for r in self.listen() if isinstance(r, kind)], f"a report {kind.__name__}")[0]

    def signal(self, signum, *, group):
        self.desk.signal(Signal(ranks=(0,), signum=signum, group=group))

    def description(self):
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
def test_worker_reports_the_exit_code_and_waits_for_its_release(rank, script, code, shown):
    one = rank(script)
    assert one.report(RankEnded).code == code
    with pytest.raises(subprocess.TimeoutExpired):
        one.worker.wait(0.3)
    one.desk.release_workers()
    assert one.worker.wait(10) == shown


def test_output_goes_to_the_pipe_and_variables_are_there(rank):
    one = rank('echo "rank $RANK"; echo oops >&2')
    one.report(RankEnded)
    assert one.description() == "rank 0\noops\n"


def test_a_signal_that_is_ordered_reaches_the_rank(rank):
    one = rank("trap 'echo heard; exit 3' USR2; echo ready; while :; do sleep 0.01; done")
    one.report(Started)
    assert one.description() == "ready\n"
    one.signal(signal.SIGUSR2, group=False)
    assert one.report(RankEnded).code == 3
    assert one.description() == "heard\n"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_scheduler_signals_do_not_end_the_worker(rank, signum):
    one = rank("read line < /dev/zero; sleep 600")
    one.report(Started)
    os.kill(one.worker.pid, signum)
    one.signal(signal.SIGKILL, group=True)
    assert one.report(RankEnded).code == -signal.SIGKILL


def test_worker_ends_with_its_agent(rank):
    one = rank("setsid sleep 600 & echo $!; sleep 600")
    pid = one.report(Started).pid
    daemon = int(one.description())
    one.desk.close()
    assert one.worker.wait(10) == 137
    assert [left for left in (pid, daemon) if Path(f"/proc/{left}").exists()] == []


def test_a_killed_worker_takes_its_rank_along(rank):
    one = rank("exec sleep 600")
    pid = one.report(Started).pid
    one.worker.kill()
    assert one.report(RankEnded).code == -signal.SIGKILL
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the rank to be gone")


def test_a_program_that_is_not_there(rank):
    one = rank("exec ./nowhere")
    assert one.report(RankEnded).code == 127


def test_worker_without_an_agent_exits_with_1(tmp_path):
    environ = {**os.environ, "ECHELON_NODE_DIR": str(tmp_path), "ECHELON_GENERATION": "0"}
    code = "import sys; from echelon.agent.worker import main; sys.exit(main('torchrun'))"
    result = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "cannot register this rank with the agent" in result.stderr
