"""Every rank has the SLURM_*, PBS_* and MPI variables that one task per rank would have."""

import itertools
import os

import pytest

from echelon.agent.rank_environ import apply_changes, nodefile, rank_changes
from echelon.codec import decode, encode
from echelon.placement import Placement, RankPlace
from echelon.system.hostlist import compress, expand
from echelon.train import detectors
from echelon.train.rank import Rank

AGENT_STEP = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NTASKS": "1",
    "SLURM_NPROCS": "1",
    "SLURM_NNODES": "1",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GTIDS": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_NODELIST": "n[1-2]",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_CPUS_PER_TASK": "8",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2)",
    "SLURM_CPUS_ON_NODE": "8",
    "SLURM_TASK_PID": "4",
    "SLURMD_NODENAME": "n2",
}
"""What an agent's srun gives it: one task on one node."""
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_COMM_WORLD_NODE_RANK": "0",
    "OMPI_UNIVERSE_SIZE": "1",
    "PMIX_RANK": "0",
    "PMIX_NAMESPACE": "3155",
    "PMIX_SERVER_URI41": "3155.0;tcp4://127.0.0.1:4",
    "PMIX_ID": "3155.0",
    "OMPI_MCA_ess": "^singleton",
    "OMPI_MCA_orte_hnp_uri": "3155.0;tcp://10.0.0.1:5",
    "OMPI_MCA_btl": "tcp,self",
    "PMIX_MCA_gds": "hash",
}


def place(node_rank=0, local_rank=0, *, nodes=2, procs=2, hosts="n[1-2]", **more):
    placement = Placement(
        run_id="gpt",
        attempt=0,
        generation=0,
        node_rank=node_rank,
        nodes=nodes,
        procs_per_node=procs,
        main_address="10.0.0.1",
        main_port=29500,
        store_is_up=True,
        max_restarts=0,
    )
    return RankPlace(placement=placement, local_rank=local_rank, hosts=hosts, **more)


def seen(at, environ=AGENT_STEP):
    """The environment of the rank."""
    result = {**environ, **at.placement.variables(at.local_rank)}
    apply_changes(rank_changes(at, environ), result)
    return result


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLURM_PROCID", "3"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "1"),
        ("SLURM_GTIDS", "2,3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_NPROCS", "4"),
        ("SLURM_STEP_NUM_TASKS", "4"),
        ("SLURM_NTASKS_PER_NODE", "2"),
        ("SLURM_TASKS_PER_NODE", "2(x2)"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
        ("SLURM_NNODES", "2"),
        ("SLURM_JOB_NUM_NODES", "2"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_NODELIST", "n[1-2]"),
        ("SLURM_NODELIST", "n[1-2]"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURM_CPUS_PER_TASK", "4"),
        ("SLURM_CPUS_ON_NODE", "8"),
        ("SLURM_JOB_CPUS_PER_NODE", "8(x2)"),
        ("SLURMD_NODENAME", "n2"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "1"),
    ],
)
def test_rank_3_of_2_nodes_with_2_ranks_each(name, value):
    assert seen(place(1, 1))[name] == value


def test_task_id_of_slurm_is_the_rank_itself():
    assert seen(place(1, 1))["SLURM_TASK_PID"] == str(os.getpid())


@pytest.mark.parametrize(("nodes", "procs"), [(1, 1), (1, 4), (2, 1), (2, 2), (3, 4), (64, 8)])
def test_slurm_variables_agree_with_rank_and_world_size(nodes, procs):
    hosts = compress([f"n{number}" for number in range(1, nodes + 1)])
    environ = {**AGENT_STEP, "SLURM_JOB_NODELIST": hosts}
    for node_rank, local_rank in itertools.product(range(nodes), range(procs)):
        env = seen(place(node_rank, local_rank, nodes=nodes, procs=procs, hosts=hosts), environ)
        assert (env["SLURM_PROCID"], env["SLURM_NTASKS"]) == (env["RANK"], env["WORLD_SIZE"])
        assert (env["SLURM_LOCALID"], env["SLURM_NTASKS_PER_NODE"]) == (env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"])
        assert (env["SLURM_NODEID"], env["SLURM_NNODES"]) == (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"])


@pytest.mark.parametrize(("node_rank", "local_rank"), list(itertools.product(range(2), range(2))))
def test_srun_detector_finds_the_same_rank(node_rank, local_rank):
    found = detectors.detect_srun(seen(place(node_rank, local_rank)))
    assert found is not None
    assert (found.rank, found.world_size) == (2 * node_rank + local_rank, 4)
    assert (found.local_rank, found.local_world_size, found.node_rank) == (local_rank, 2, node_rank)
    assert found.main_address == "n1"


def test_join_takes_the_rank_from_echelon():
    rank = Rank.from_environ(seen(place(1, 1)))
    assert (rank.source, rank.rank, rank.world_size, rank.main_port) == ("echelon", 3, 4, 29500)


def test_pyg_script_without_rank_falls_back_to_the_same_world():
    env = {name: value for name, value in seen(place(1, 0)).items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    world_size = int(env.get("WORLD_SIZE", env.get("SLURM_NTASKS")))
    rank = int(env.get("RANK", env.get("SLURM_PROCID")))
    assert (rank, world_size, int(env.get("LOCAL_RANK", env.get("SLURM_LOCALID")))) == (2, 4, 0)


@pytest.mark.parametrize(
    ("listed", "hosts", "text", "cpus"),
    [
        ("n[1-3]", "n1,n3", "n[1,3]", "8,2"),  # n2 was lost, or n3 is the spare that replaced it
        ("n[1-3]", "n[2-3]", "n[2-3]", "4,2"),
        ("n[1-3]", "n1", "n1", "8"),
        ("n[1-3]", "n[1-3]", "n[1-3]", "8,4,2"),
        ("n1,n2,n3", "n[1-3]", "n1,n2,n3", "8,4,2"),  # unchanged lists keep Slurm's own spelling
    ],
)
def test_node_lists_contain_the_nodes_of_the_generation(listed, hosts, text, cpus):
    environ = {**AGENT_STEP, "SLURM_JOB_NODELIST": listed, "SLURM_JOB_CPUS_PER_NODE": "8,4,2"}
    env = seen(place(nodes=len(expand(hosts)), hosts=hosts), environ)
    assert {env[f"SLURM_{name}"] for name in ("JOB_NODELIST", "NODELIST", "STEP_NODELIST")} == {text}
    assert env["SLURM_JOB_CPUS_PER_NODE"] == cpus
    assert env["SLURM_NNODES"] == str(len(expand(text)))


@pytest.mark.parametrize("hosts", ["node[0-1]", ""])
def test_rehearsal_inside_a_job_keeps_the_node_list(hosts):
    changes = rank_changes(place(1, 1, hosts=hosts), AGENT_STEP)
    assert "SLURM_JOB_NODELIST" not in changes
    assert (changes["SLURM_PROCID"], changes["SLURM_NTASKS"]) == ("3", "4")


@pytest.mark.parametrize("damaged", ["", "n[1-", "n[3-1]"])
def test_damaged_node_list_stays_unchanged(damaged):
    changes = rank_changes(place(1, 1), {**AGENT_STEP, "SLURM_JOB_NODELIST": damaged, "SLURM_NODELIST": damaged})
    assert "SLURM_JOB_NODELIST" not in changes
    assert changes["SLURM_PROCID"] == "3"


@pytest.mark.parametrize(
    ("step", "procs", "cpus"),
    [
        ({"SLURM_CPUS_PER_TASK": "8"}, 2, "4"),
        ({"SLURM_CPUS_PER_TASK": "8"}, 3, "2"),
        ({"SLURM_CPUS_PER_TASK": "1"}, 4, "1"),
        ({"SLURM_CPUS_PER_TASK": "8"}, 1, "8"),
        # --launcher srun: the step has one task per rank already
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "1"}, 2, "4"),
        ({"SLURM_CPUS_PER_TASK": "8", "SLURM_STEP_TASKS_PER_NODE": "nonsense"}, 2, "4"),
    ],
)
def test_cpus_of_the_node_are_divided_among_ranks(step, procs, cpus):
    assert seen(place(procs=procs), {**AGENT_STEP, **step})["SLURM_CPUS_PER_TASK"] == cpus


def test_cpus_in_the_resources_of_a_task_agree():
    """srun of Slurm 24.11 in a rank is fatal if the two numbers differ."""
    step = {"SLURM_CPUS_PER_TASK": "8", "SLURM_TRES_PER_TASK": "cpu=8,gres/gpu:a100=1"}
    assert seen(place(procs=2), {**AGENT_STEP, **step})["SLURM_TRES_PER_TASK"] == "cpu=4,gres/gpu:a100=1"
    assert "SLURM_TRES_PER_TASK" not in seen(place(procs=2), AGENT_STEP)


def test_cpus_per_task_stays_unset_if_slurm_set_none():
    environ = {name: value for name, value in AGENT_STEP.items() if name != "SLURM_CPUS_PER_TASK"}
    assert "SLURM_CPUS_PER_TASK" not in seen(place(), environ)


def test_variables_of_the_user_stay():
    environ = {**AGENT_STEP, "SLURM_CPUS_PER_TASK": "3"}
    assert seen(place(user_variables=("SLURM_CPUS_PER_TASK",)), environ)["SLURM_CPUS_PER_TASK"] == "3"


@pytest.mark.parametrize("environ", [{}, {"PATH": "/bin"}, {"SLURM_CONF": "/etc/slurm.conf"}, {"PBS_SERVER": "pbs"}])
def test_nothing_changes_outside_of_jobs(environ):
    assert rank_changes(place(1, 1), environ) == {}


def test_ranks_in_salloc_without_procid_get_one():
    environ = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n1"}
    env = seen(place(0, 3, nodes=1, procs=4, hosts="node0"), environ)
    assert (env["SLURM_PROCID"], env["SLURM_NTASKS"], env["SLURM_LOCALID"]) == ("3", "4", "3")
    assert env["SLURM_TASKS_PER_NODE"] == "4"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PBS_NODENUM", "1"),
        ("PBS_TASKNUM", "4"),
        ("PBS_VNODENUM", "3"),
        ("PBS_NP", "4"),
        ("PBS_NUM_PPN", "2"),
        ("PBS_NUM_NODES", "2"),
        ("PBS_NODEFILE", "/tmp/echelon-x/nodefile"),
        ("PBS_JOBID", "0.server"),
    ],
)
def test_pbs_variables(name, value):
    task = {
        "PBS_JOBID": "0.server",
        "PBS_NODENUM": "0",
        "PBS_TASKNUM": "00000001",
        "PBS_VNODENUM": "0",
        "PBS_NP": "2",
        "PBS_NUM_PPN": "1",
        "PBS_NUM_NODES": "9",
    }
    assert seen(place(1, 1, nodefile="/tmp/echelon-x/nodefile"), task)[name] == value


def test_torque_variables_are_not_invented():
    assert set(rank_changes(place(1, 1), {"PBS_JOBID": "0.server"})) == {"PBS_NODENUM", "PBS_TASKNUM"}


def test_the_node_file_has_one_line_per_rank():
    assert nodefile(place(hosts="n1,n3")) == "n1\nn1\nn3\nn3\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("OMPI_COMM_WORLD_NODE_RANK", "1"),
        ("OMPI_UNIVERSE_SIZE", "4"),
        ("PMIX_RANK", "3"),
        ("PMIX_NAMESPACE", None),
        ("PMIX_SERVER_URI41", None),
        ("PMIX_ID", None),
        ("OMPI_MCA_ess", None),
        ("OMPI_MCA_orte_hnp_uri", None),
        ("OMPI_MCA_btl", "tcp,self"),
        ("PMIX_MCA_gds", "hash"),
    ],
)
def test_variables_of_an_outer_mpirun(name, value):
    assert seen(place(1, 1), MPIRUN).get(name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PMI_RANK", "3"),
        ("PMI_SIZE", "4"),
        ("MPI_LOCALRANKID", "1"),
        ("MPI_LOCALNRANKS", "2"),
        ("PMI_FD", None),
        ("PMI_PORT", None),
        ("MV2_COMM_WORLD_RANK", "3"),
        ("MV2_COMM_WORLD_SIZE", "4"),
        ("PALS_RANKID", "3"),
        ("MV2_COMM_WORLD_LOCAL_RANK", "1"),
        ("MV2_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PALS_NODEID", "1"),
    ],
)
def test_variables_of_other_mpi_launchers(name, value):
    assert seen(place(1, 1), {name: "0", "PMI_RANK": "0"}).get(name) == value


@pytest.mark.parametrize("name", ["OMPI_MCA_btl", "OMPI_MCA_orte_tmpdir_base", "PMIX_MCA_gds", "PMI_DEBUG"])
def test_mpi_settings_stay_without_mpirun(name):
    assert rank_changes(place(1, 1), {name: "x"}) == {}


def test_an_mpi_launcher_keeps_its_own_variables():
    own = {**MPIRUN, "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    assert rank_changes(place(1, 1, has_mpi_variables=True), own) == {}


def test_a_daemon_of_mpirun_does_not_pass_its_slurm_rank_on():
    environ = {**AGENT_STEP, **MPIRUN}
    env = seen(place(1, 1, has_mpi_variables=True), environ)
    assert (env["SLURM_PROCID"], env["SLURM_NTASKS"], env["PMIX_NAMESPACE"]) == ("3", "4", "3155")


def test_place_reaches_the_worker_unchanged():
    one = place(1, 1, user_variables=("LR",), nodefile="/x")
    assert decode(RankPlace, encode(one)) == one


def test_a_place_of_ten_thousand_nodes_is_small():
    hosts = compress([f"gpu-{number:05}" for number in range(10_000)])
    assert len(str(encode(place(nodes=10_000, hosts=hosts)))) < 1000
