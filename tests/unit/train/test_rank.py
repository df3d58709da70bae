"""Who am I, from plain mappings: every launcher, every contradiction, no process."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import ConfigError
from echelon.system import hostlist
from echelon.train.detectors import MVAPICH2, OPEN_MPI, PMI, SRUN, TORCHRUN
from echelon.train.rank import Rank

AGENT = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "4711",
    "TORCHELASTIC_RUN_ID": "gpt-1",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
TASK = {
    "SLURM_JOB_ID": "1234",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "6",
    "SLURM_NTASKS": "7",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "n[01-04]",
    "SLURM_JOB_NODELIST": "n[00-04]",
    "SLURM_LAUNCH_NODE_IPADDR": "192.168.0.9",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "2",
    "MV2_COMM_WORLD_SIZE": "4",
    "MV2_COMM_WORLD_LOCAL_RANK": "0",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
}
PALS = {
    "PALS_RANKID": "9",
    "PMI_RANK": "9",
    "PMI_SIZE": "12",
    "PALS_LOCAL_RANKID": "3",
    "PMI_LOCAL_SIZE": "6",
    "PALS_NODEID": "1",
    "PALS_APID": "a-b-c",
}


def places(rank):
    return rank.rank, rank.local_rank, rank.node_rank, rank.world_size, rank.local_world_size


@pytest.mark.parametrize(
    ("environ", "source", "expected"),
    [
        ({}, "alone", (0, 0, 0, 1, 1)),
        ({"PATH": "/bin", "SLURM_JOB_ID": "7"}, "alone", (0, 0, 0, 1, 1)),
        ({"WORLD_SIZE": "1"}, "alone", (0, 0, 0, 1, 1)),
        ({"RANK": "", "WORLD_SIZE": ""}, "alone", (0, 0, 0, 1, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, "RANK", (0, 0, 0, 1, 1)),
        (AGENT, "torchrun", (5, 1, 1, 8, 4)),
        (AGENT | {"ECHELON_RUN_ID": "gpt-1"}, "echelon", (5, 1, 1, 8, 4)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "RANK", (1, 1, 0, 4, 4)),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "RANK", (3, 1, 1, 4, 2)),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "NODE_RANK": "2"}, "RANK", (3, 0, 2, 4, 4)),
        (TASK, "srun", (6, 0, 3, 7, 1)),
        (TASK | {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}, "srun", (3, 1, 1, 7, 2)),
        (MPIRUN, "Open MPI", (1, 1, 0, 4, 2)),
        (HYDRA, "PMI", (3, 1, 1, 4, 2)),
        (MVAPICH, "MVAPICH2", (2, 0, 1, 4, 2)),
        (PALS, "PMI", (9, 3, 1, 12, 6)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI", (1, 1, 0, 2, 2)),
    ],
)
def test_every_launcher_is_understood(environ, source, expected):
    rank = Rank.from_environ(environ)
    assert (rank.source, places(rank)) == (source, expected)


BATCH_SHELL = {
    "SLURM_JOB_ID": "9",
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "8",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_NODELIST": "n[1-2]",
}
DAEMON_STEP = TASK | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NODEID": "0"}


@pytest.mark.parametrize(
    ("environ", "source", "expected"),
    [
        (TASK | AGENT, "torchrun", (5, 1, 1, 8, 4)),
        (MPIRUN | AGENT, "torchrun", (5, 1, 1, 8, 4)),
        (AGENT | {"OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_SIZE": "2"}, "torchrun", (5, 1, 1, 8, 4)),
        (DAEMON_STEP | MPIRUN, "Open MPI", (1, 1, 0, 4, 2)),
        (DAEMON_STEP | HYDRA, "PMI", (3, 1, 1, 4, 2)),
        (DAEMON_STEP | MVAPICH, "MVAPICH2", (2, 0, 1, 4, 2)),
        (TASK | {"PMI_RANK": "6", "PMI_SIZE": "7"}, "srun", (6, 0, 3, 7, 1)),
        (BATCH_SHELL, "alone", (0, 0, 0, 1, 1)),
        (BATCH_SHELL | MPIRUN, "Open MPI", (1, 1, 0, 4, 2)),
        (BATCH_SHELL | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, "srun", (0, 0, 0, 1, 1)),
    ],
    ids=[
        "torchrun in srun",
        "torchrun in mpirun",
        "torchrun in nonsense",
        "mpirun by srun",
        "mpiexec by srun",
        "mvapich by srun",
        "srun --mpi=pmi2",
        "a batch shell",
        "mpirun in a batch shell",
        "an interactive shell",
    ],
)
def test_innermost_launcher_takes_precedence(environ, source, expected):
    rank = Rank.from_environ(environ)
    assert (rank.source, places(rank)) == (source, expected)


def test_exported_rank_under_srun_is_completed_from_srun():
    rank = Rank.from_environ(TASK | {"RANK": "6", "WORLD_SIZE": "7"})
    assert places(rank) == (6, 0, 3, 7, 1)
    assert (rank.main_address, rank.main_port) == ("n01", hostlist.step_port(1234, 0))


@pytest.mark.parametrize(
    "exports",
    [
        {"RANK": "2", "WORLD_SIZE": "7"},
        {"RANK": "6", "WORLD_SIZE": "8"},
        {"RANK": "6", "WORLD_SIZE": "7", "LOCAL_RANK": "5"},
    ],
)
def test_launcher_of_another_rank_is_ignored(exports):
    rank = Rank.from_environ(TASK | exports)
    assert rank.main_address is None
    assert rank.local_world_size == rank.world_size


def test_contradicting_launcher_is_ignored():
    told_no_local_rank = TASK | {"SLURM_LOCALID": ""}
    assert Rank.from_environ(told_no_local_rank | {"RANK": "6", "WORLD_SIZE": "7"}).local_world_size == 1
    assert (
        Rank.from_environ(told_no_local_rank | {"RANK": "6", "WORLD_SIZE": "7", "LOCAL_RANK": "5"}).local_world_size
        == 7
    )


@pytest.mark.parametrize(
    ("environ", "address", "port"),
    [
        ({}, None, None),
        (AGENT, "10.0.0.1", 4711),
        (TASK, "n01", hostlist.step_port(1234, 0)),
        ({k: v for k, v in TASK.items() if k != "SLURM_STEP_NODELIST"}, "n00", hostlist.step_port(1234, 0)),
        ({k: v for k, v in TASK.items() if "NODELIST" not in k}, "192.168.0.9", hostlist.step_port(1234, 0)),
        (TASK | {"MASTER_ADDR": "ib7", "MASTER_PORT": "9"}, "ib7", 9),
        (TASK | {"MASTER_PORT": "9"}, "n01", 9),
        (MPIRUN, None, 29_500),
        (MPIRUN | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, "127.0.0.1", 29_500),
        (MPIRUN | {"SLURM_JOB_NODELIST": "n[3-4]", "MASTER_PORT": "5"}, "n3", 5),
        (HYDRA | {"MASTER_ADDR": "n9"}, "n9", 29_500),
    ],
)
def test_rendezvous_address_is_set_or_follows_from_the_nodes(environ, address, port):
    rank = Rank.from_environ(environ)
    assert (rank.main_address, rank.main_port) == (address, port)


@pytest.mark.parametrize("step", range(8))
def test_two_thousand_consecutive_jobs_have_different_ports(step):
    ports = {hostlist.step_port(job, step) for job in range(10_000_000, 10_002_000)}
    assert len(ports) == 2_000
    assert 1024 < min(ports) < max(ports) < 32_768


def test_steps_of_one_job_and_mpi_jobs_have_different_ports():
    assert len({hostlist.step_port(7, step) for step in range(8)}) == 8
    one, two = (
        Rank.from_environ(MPIRUN | {"PMIX_NAMESPACE": name}).main_port for name in ("prterun-1@1", "prterun-2@1")
    )
    assert one != two


@pytest.mark.parametrize(
    ("environ", "session"),
    [
        ({}, ""),
        (AGENT, "gpt-1.2"),
        (TASK, "1234.0"),
        (TASK | {"SLURM_RESTART_COUNT": "1"}, "1234.0.1"),
        (MPIRUN | {"PMIX_NAMESPACE": "prterun-1@1"}, "prterun-1@1"),
        (PALS, "a-b-c"),
    ],
)
def test_sessions_of_two_starts_differ(environ, session):
    assert Rank.from_environ(environ).session == session


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RANK": "4", "WORLD_SIZE": "4"}, {"RANK", "WORLD_SIZE"}),
        ({"RANK": "0", "WORLD_SIZE": "0"}, {"RANK", "WORLD_SIZE"}),
        ({"RANK": "0"}, {"RANK", "WORLD_SIZE"}),
        ({"WORLD_SIZE": "4"}, {"RANK", "WORLD_SIZE"}),
        (TASK | {"RANK": "6"}, {"RANK", "WORLD_SIZE"}),
        (AGENT | {"LOCAL_RANK": "4"}, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}),
        (AGENT | {"LOCAL_WORLD_SIZE": "9"}, {"LOCAL_WORLD_SIZE", "WORLD_SIZE"}),
        (AGENT | {"LOCAL_WORLD_SIZE": "0", "LOCAL_RANK": ""}, {"LOCAL_WORLD_SIZE", "WORLD_SIZE"}),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "2"}, {"LOCAL_RANK", "WORLD_SIZE"}),
        (AGENT | {"GROUP_RANK": "8"}, {"GROUP_RANK", "WORLD_SIZE"}),
        (AGENT | {"RANK": "five"}, {"RANK"}),
        (AGENT | {"RANK": "-1"}, {"RANK"}),
        (AGENT | {"WORLD_SIZE": "8.0"}, {"WORLD_SIZE"}),
        (AGENT | {"LOCAL_RANK": "1 "}, {"LOCAL_RANK"}),
        (AGENT | {"LOCAL_RANK": "\u0661"}, {"LOCAL_RANK"}),
        (AGENT | {"MASTER_PORT": "65536"}, {"MASTER_PORT"}),
        (AGENT | {"MASTER_PORT": "0"}, {"MASTER_PORT"}),
        (AGENT | {"MASTER_PORT": "http"}, {"MASTER_PORT"}),
        (TASK | {"SLURM_PROCID": "7"}, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}),
        (TASK | {"SLURM_LOCALID": "1"}, {"SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"}),
        (TASK | {"SLURM_STEP_TASKS_PER_NODE": "2(x"}, {"SLURM_STEP_TASKS_PER_NODE"}),
        (TASK | {"SLURM_STEP_NODELIST": "n[1-"}, {"SLURM_STEP_NODELIST"}),
        (TASK | {"SLURM_JOB_ID": "1234_5"}, {"SLURM_JOB_ID"}),
        (MPIRUN | {"OMPI_COMM_WORLD_SIZE": ""}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}),
        (HYDRA | {"PMI_RANK": "4"}, {"PMI_RANK", "PMI_SIZE"}),
        (HYDRA | {"MPI_LOCALRANKID": "2"}, {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}),
        (MVAPICH | {"MV2_COMM_WORLD_SIZE": "x"}, {"MV2_COMM_WORLD_SIZE"}),
    ],
)
def test_contradiction_is_refused_with_the_names_of_variables(environ, named):
    with pytest.raises(ConfigError) as caught:
        Rank.from_environ(environ)
    assert all(name in str(caught.value) for name in named), str(caught.value)


@pytest.mark.parametrize(
    ("text", "counts"), [("1", [1]), ("2(x3),1", [2, 2, 2, 1]), ("4(x2)", [4, 4]), ("1,2,10(x2)", [1, 2, 10, 10])]
)
def test_tasks_per_node_are_unfolded(text, counts):
    assert hostlist.parse_tasks_per_node(text) == counts


@pytest.mark.parametrize("text", ["", "0", "x", "2(x0)", "2(3)", "2(x3", "1,", "-1", "1;2", "1(x99999999)"])
def test_other_counts_are_refused(text):
    with pytest.raises(ValueError):
        hostlist.parse_tasks_per_node(text)


def test_host_of_rank_follows_from_lists_and_counts():
    assert hostlist.hosts_by_rank(TASK) == ["n01", "n01", "n02", "n02", "n03", "n03", "n04"]
    assert hostlist.hosts_by_rank(TASK | {"SLURM_DISTRIBUTION": "cyclic"}) == []
    assert hostlist.hosts_by_rank(TASK | {"SLURM_STEP_NODELIST": "n[01-02]"}) == []
    assert hostlist.hosts_by_rank({}) == []


NAMES = sorted(
    {
        name
        for table in (TORCHRUN, OPEN_MPI, MVAPICH2, PMI, SRUN)
        for field in (
            table.rank,
            table.world_size,
            table.local_rank,
            table.local_world_size,
            table.node_rank,
            table.session,
        )
        for name in field
    }
    | {*hostlist.HOST_LIST_VARIABLES, *hostlist.TASK_COUNT_VARIABLES, "MASTER_ADDR", "MASTER_PORT"}
)
VALUES = st.one_of(st.integers(0, 4).map(str), st.sampled_from(["", "-1", "x", "n[1-2]", "2(x2)", "n1"]))


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_environment_gives_a_valid_rank_or_an_error(environ):
    before = dict(environ)
    try:
        rank = Rank.from_environ(environ)
    except ConfigError:
        return
    assert 0 <= rank.rank < rank.world_size
    assert 0 <= rank.local_rank < rank.local_world_size <= rank.world_size
    assert rank.node_rank >= 0
    assert environ == before


@given(st.integers(1, 6), st.integers(1, 8))
def test_ranks_of_a_step_differ_and_share_one_rendezvous(nodes, per_node):
    def task(rank):
        return Rank.from_environ(
            {
                "SLURM_JOB_ID": "77",
                "SLURM_STEP_ID": "1",
                "SLURM_PROCID": str(rank),
                "SLURM_NTASKS": str(nodes * per_node),
                "SLURM_LOCALID": str(rank % per_node),
                "SLURM_NODEID": str(rank // per_node),
                "SLURM_STEP_TASKS_PER_NODE": f"{per_node}(x{nodes})",
                "SLURM_STEP_NODELIST": f"n[01-{nodes:02d}]",
            }
        )

    ranks = [task(rank) for rank in range(nodes * per_node)]
    assert {rank.rank for rank in ranks} == set(range(nodes * per_node))
    assert len({(rank.node_rank, rank.local_rank) for rank in ranks}) == nodes * per_node
    assert len({(rank.main_address, rank.main_port, rank.session) for rank in ranks}) == 1


def test_the_real_environment_is_only_read(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in AGENT.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    assert Rank.from_environ(os.environ).rank == 5
    assert dict(os.environ) == before
