"""Command lines of launchers: nodes, ranks, addresses and ports are explicit."""

from dataclasses import replace

import pytest

from echelon.backends.batch import step_variables_to_remove
from echelon.job import Job, LauncherOptions, Resources, Script, ScriptKind
from echelon.launchers import LAUNCHERS, LaunchContext, Scope, launcher_scope, load_launcher, reserved_option
from echelon.launchers.accelerate import config_files, training_kind

JOB = Job(
    name="gpt",
    script=Script(kind=ScriptKind.FILE, target="train.py"),
    cwd="/home/ada",
    python="/venv/bin/python",
    scheduler="slurm",
    resources=Resources(nodes=2, procs_per_node=4, gpus_per_node=4),
)
WHERE = LaunchContext(
    node_rank="1",
    is_first="0",
    nodes=2,
    procs_per_node=4,
    main_address="10.0.0.1",
    main_port="29500",
    own_address="10.0.0.2",
    launcher_port="29501",
    hosts=("n1", "n2"),
    folder="/tmp/echelon-gpt",
)
WORKER = ("/venv/bin/python", "-I", "echelon.pyz", "worker", "x")
OTHERS = [name for name in LAUNCHERS if name != "ranks"]


def command(name, job=JOB, where=WHERE, environ=None):
    return load_launcher(name).command(replace(job, launcher=name), where, WORKER, environ or {})


def words(name, **options):
    return command(name, **options).argv


@pytest.mark.parametrize("name", OTHERS)
def test_worker_command_is_last_and_unchanged(name):
    assert words(name)[-len(WORKER) :] == WORKER


@pytest.mark.parametrize(("name", "scope"), [("ranks", Scope.RANK), ("srun", Scope.JOB), ("mpirun", Scope.JOB)])
def test_scope_of_launchers_by_name(name, scope):
    assert launcher_scope(replace(JOB, launcher=name)) is scope


@pytest.mark.parametrize("name", ["torchrun", "accelerate", "legacy"])
def test_scope_of_node_launchers(name):
    assert launcher_scope(replace(JOB, launcher=name)) is Scope.NODE


@pytest.mark.parametrize("name", ["torchrun", "legacy"])
def test_torchrun_uses_our_rendezvous_and_no_restarts(name):
    given = set(words(name))
    assert given >= {"--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--max-restarts=0", "--no-python"}
    assert given >= {"--master-addr=10.0.0.1", "--master-port=29500", "--log-dir=/tmp/echelon-gpt"}
    assert ("--use-env" in given) == (name == "legacy")


def test_c10d_has_explicit_host_and_separate_store():
    made = command("torchrun", replace(JOB, launching=LauncherOptions(rdzv="c10d")))
    assert set(made.argv) >= {"--rdzv-backend=c10d", "--rdzv-endpoint=10.0.0.1:29501", "--rdzv-conf=is_host=0"}
    assert "--local-addr=10.0.0.2" in made.argv
    assert not any(word.startswith(("--master", "--node-rank")) for word in made.argv)
    assert made.env == {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    first = command("torchrun", replace(JOB, launching=LauncherOptions(rdzv="c10d")), replace(WHERE, is_first="1"))
    assert "--rdzv-conf=is_host=1" in first.argv


def test_accelerate_gets_machine_rank_and_process_count():
    given = set(words("accelerate"))
    assert given >= {"--num_machines=2", "--machine_rank=1", "--num_processes=8", "--multi_gpu", "--no_python"}
    assert given >= {"--main_process_ip=10.0.0.1", "--main_process_port=29500", "--rdzv_backend=static"}


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ("", {"--multi_gpu", "--mixed_precision=no", "--dynamo_backend=no"}),
        ("distributed_type: MULTI_GPU\nmixed_precision: bf16\n", {"--multi_gpu"}),
        ("distributed_type: 'NO'\n", {"--multi_gpu"}),
        ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n", set()),
        ('{\n  "distributed_type": "FSDP"\n}\n', set()),
        ("distributed_type: DEEPSPEED\n", {"--deepspeed_multinode_launcher=standard"}),
        ("distributed_type: MEGATRON_LM\n", set()),
    ],
)
def test_accelerate_config_selects_training_kind(config, flags):
    given = set(words("accelerate", where=replace(WHERE, config=config)))
    choices = {"--multi_gpu", "--mixed_precision=no", "--dynamo_backend=no", "--deepspeed_multinode_launcher=standard"}
    assert given & choices == flags


@pytest.mark.parametrize(("gpus", "env"), [(4, {}), (0, {"ACCELERATE_USE_CPU": "true"})])
def test_accelerate_gets_cpu_variable_without_gpus(gpus, env):
    job = replace(JOB, resources=replace(JOB.resources, gpus_per_node=gpus))
    assert command("accelerate", job).env == env


def test_single_accelerate_process_is_not_multi_gpu():
    alone = replace(WHERE, nodes=1, procs_per_node=1)
    assert "--multi_gpu" not in words("accelerate", where=alone)


@pytest.mark.parametrize("dash", ["_", "-"])
def test_option_selects_training_kind_in_any_spelling(dash):
    job = replace(JOB, launching=LauncherOptions(options={f"use{dash}fsdp": "", f"mixed{dash}precision": "bf16"}))
    given = words("accelerate", job=job)
    assert "--use_fsdp" in given
    assert "--multi_gpu" not in given
    assert [word for word in given if word.startswith("--mixed")] == ["--mixed_precision=bf16"]
    deepspeed = replace(JOB, launching=LauncherOptions(options={f"use{dash}deepspeed": ""}))
    assert "--deepspeed_multinode_launcher=standard" in words("accelerate", job=deepspeed)


@pytest.mark.parametrize("text", ["", "debug: false\n", "# distributed_type: FSDP\n", "a_distributed_type: FSDP\n"])
def test_config_without_a_training_kind(text):
    assert training_kind(text) == ""


@pytest.mark.parametrize(
    ("options", "environ", "first"),
    [
        ({}, {"HOME": "/home/ada"}, "/home/ada/.cache/huggingface/accelerate/default_config.yaml"),
        ({}, {"HOME": "/home/ada", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/accelerate/default_config.yaml"),
        ({}, {"HOME": "/home/ada", "HF_HOME": "/hf"}, "/hf/accelerate/default_config.yaml"),
        ({"config_file": "a.yaml"}, {"HF_HOME": "/hf"}, "/home/ada/a.yaml"),
        ({"config-file": "/etc/a.yaml"}, {}, "/etc/a.yaml"),
    ],
)
def test_paths_of_accelerate_config(options, environ, first):
    assert str(config_files(replace(JOB, launching=LauncherOptions(options=options)), environ)[0]) == first


def test_srun_starts_one_task_per_rank():
    given = words("srun")
    assert given[0] == "srun"
    assert set(given) >= {"--nodes=2", "--nodelist=n1,n2", "--ntasks=8", "--ntasks-per-node=4", "--distribution=block"}
    assert set(given) >= {"--overlap", "--kill-on-bad-exit=0", "--no-kill", "--input=none", "--export=ALL"}
    assert "--gpus-per-node=4" in given


@pytest.mark.parametrize(
    ("asked", "told", "flag"),
    [
        (16, "", "--cpus-per-task=4"),
        (16, "64(x2)", "--cpus-per-task=4"),
        (None, "64(x2)", "--cpus-per-task=16"),
        (None, "64,12", "--cpus-per-task=3"),
        (None, "2(x2)", "--overcommit"),
        (3, "", "--overcommit"),
    ],
)
def test_srun_gets_explicit_cpus(asked, told, flag):
    job = replace(JOB, resources=replace(JOB.resources, cpus=asked))
    given = words("srun", job=job, environ={"SLURM_JOB_CPUS_PER_NODE": told})
    assert [word for word in given if word.startswith(("--cpus", "--over")) and word != "--overlap"] == [flag]


@pytest.mark.parametrize("option", ["cpu-bind", "gpu-bind"])
def test_srun_binding_is_none_by_default(option):
    """Said once: which of two would count is left to nobody."""
    job = replace(JOB, launcher="srun", launching=LauncherOptions(options={option: "cores"}))
    assert reserved_option(job) is None
    assert [word for word in words("srun") if option in word] == [f"--{option}=none"]
    assert [word for word in words("srun", job=job) if option in word] == [f"--{option}=cores"]


def test_srun_without_gpus_requests_none():
    job = replace(JOB, resources=replace(JOB.resources, gpus_per_node=0))
    assert not any("gpu" in word for word in words("srun", job=job))


def test_mpirun_places_ranks_in_blocks_on_our_hosts():
    given = " ".join(words("mpirun"))
    assert given.startswith("mpirun -n 8 --host n1:4,n2:4 --map-by ppr:4:node --oversubscribe --bind-to none ")


def test_rehearsed_nodes_are_one_host():
    assert "--host localhost:8 --oversubscribe" in " ".join(words("mpirun", where=replace(WHERE, rehearses_nodes=True)))


def test_mpirun_gets_variables_by_name_only():
    job = replace(JOB, env={"LR": "1e-4"}, secret_env=("HF_TOKEN",))
    made = command("mpirun", job, environ={"HF_TOKEN": "s3cret", "LR": "1e-4", "PATH": "/bin", "OTHER": "x"})
    given = list(zip(made.argv, made.argv[1:], strict=False))
    assert {b for a, b in given if a == "-x"} == {"HF_TOKEN", "LR", "PATH"}
    assert "s3cret" not in "".join(made.argv) + "".join(made.env.values())


@pytest.mark.parametrize("root", [True, False])
def test_mpirun_allows_root_only_for_root(root):
    made = command("mpirun", where=replace(WHERE, is_root=root))
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in made.env) == root


def test_mpirun_daemons_overlap_our_step_in_slurm():
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3"}
    env = command("mpirun", environ=environ).env
    assert (env["SLURM_OVERLAP"], env["SLURM_NODELIST"], env["SLURM_TASKS_PER_NODE"]) == ("1", "n[1-3]", "4(x3)")
    assert "SLURM_OVERLAP" not in command("mpirun").env


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("torchrun", {"monitor-interval": "1", "no-fuss": ""}, ["--monitor-interval=1", "--no-fuss"]),
        ("srun", {"mpi": "pmix"}, ["--mpi=pmix"]),
        ("mpirun", {"mca": "btl tcp,self", "report-bindings": ""}, ["--mca", "btl", "tcp,self", "--report-bindings"]),
        ("mpirun", {"display": "map"}, ["--display", "map"]),
    ],
)
def test_user_options_are_unchanged(name, options, expected):
    given = list(words(name, job=replace(JOB, launching=LauncherOptions(options=options))))
    at = given.index(expected[0])
    assert given[at : at + len(expected)] == expected


def test_variables_of_the_current_step_are_removed():
    around = ["SLURM_PROCID", "SLURM_STEP_ID", "SLURM_NTASKS", "SLURM_CPU_BIND", "SLURM_TASKS_PER_NODE", "SRUN_DEBUG"]
    kept = ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURM_ARRAY_TASK_ID", "PATH"]
    assert step_variables_to_remove([*around, *kept]) == sorted(around)
