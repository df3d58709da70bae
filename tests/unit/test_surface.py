"""The surface that users rely on, spelled out: a change here is a change for them, and shows up in a diff."""

import click

from echelon import errors, exit_codes
from echelon.cli import COMMANDS, commands
from echelon.config.layers import OUR_OWN
from echelon.config.options import OPTIONS
from echelon.events import Kind
from echelon.job import ScriptKind
from echelon.states import JobState

JOB_FLAGS = {
    "-N", "--nodes", "-g", "--gpus-per-node", "--procs-per-node", "--min-nodes", "--spare-nodes", "--time", "--notice",
    "--requeues", "--restarts", "--hang-timeout", "--grace", "--heartbeat", "--join-timeout", "--name", "--on",
    "--launcher", "--env", "--python", "--ports", "--interface", "--cpu", "--cold", "--set", "--cpus", "--mem",
    "--gpu-type", "-p", "--partition", "-A", "--account", "--qos", "--constraint", "--reservation", "--nodelist",
    "--exclude", "--array", "--dependency", "--mail", "--mail-type", "--comment", "--licenses", "--gres", "--slurm",
    "--pbs", "--pbs-dialect", "--site", "--hosts", "--hostfile", "--snapshot", "--snapshot-max",
    "--rdzv", "--modules", "--setup", "--venv", "--conda", "--image", "--mount", "--container-workdir", "--container-name", "--container-writable", "--container-root", "--container-exec", "--launcher-option",
    "--debug", "-h", "--help",
}  # fmt: skip
ALWAYS = {"--debug", "-h", "--help"}
FLAGS = {
    "run": JOB_FLAGS,
    "submit": JOB_FLAGS,
    "render": JOB_FLAGS | {"--plain", "--explain", "--json"},
    "ls": ALWAYS | {"-n", "--last", "--json"},
    "status": ALWAYS | {"--json"},
    "logs": ALWAYS | {"-f", "--follow", "--rank", "--node", "--attempt", "--json"},
    "why": ALWAYS | {"--json"},
    "cancel": ALWAYS,
    "resume": ALWAYS | {"--detach"},
    "checkpoints": ALWAYS | {"--verify", "--json"},
    "export": ALWAYS | {"--step", "--all"},
    "init": ALWAYS,
}
KEYS = [
    "nodes", "gpus_per_node", "gpu_type", "procs_per_node", "cpus", "mem", "min_nodes", "spare_nodes", "time", "notice",
    "requeues", "restarts", "hang_timeout", "grace", "heartbeat", "join_timeout", "name", "on", "launcher", "rdzv",
    "env", "modules", "setup", "venv", "conda", "image", "mount", "container_workdir", "container_name",
    "container_writable", "container_root", "container_exec",
    "hosts", "hostfile", "snapshot", "snapshot_max",
    "python", "ports", "interface", "cpu", "cold", "partition", "account", "qos", "constraint", "reservation",
    "nodelist", "exclude", "array", "dependency", "mail", "mail_type", "comment", "licenses", "gres",
    "pbs_dialect", "site", "set", "launcher_option", "slurm", "pbs", "queues",
]  # fmt: skip
VARIABLES = {
    "ECHELON_NODES", "ECHELON_GPUS_PER_NODE", "ECHELON_PROCS_PER_NODE", "ECHELON_MIN_NODES", "ECHELON_SPARE_NODES",
    "ECHELON_TIME", "ECHELON_NOTICE", "ECHELON_REQUEUES", "ECHELON_RESTARTS", "ECHELON_HANG_TIMEOUT", "ECHELON_GRACE",
    "ECHELON_HEARTBEAT", "ECHELON_JOIN_TIMEOUT", "ECHELON_NAME", "ECHELON_ON", "ECHELON_LAUNCHER", "ECHELON_ENV",
    "ECHELON_PYTHON", "ECHELON_PORTS", "ECHELON_CPU", "ECHELON_COLD", "ECHELON_SET", "ECHELON_GPU_TYPE", "ECHELON_CPUS",
    "ECHELON_MEM", "ECHELON_INTERFACE", "ECHELON_PARTITION", "ECHELON_ACCOUNT", "ECHELON_QOS", "ECHELON_CONSTRAINT",
    "ECHELON_RESERVATION", "ECHELON_NODELIST", "ECHELON_EXCLUDE", "ECHELON_ARRAY", "ECHELON_DEPENDENCY", "ECHELON_MAIL",
    "ECHELON_MAIL_TYPE", "ECHELON_COMMENT", "ECHELON_LICENSES", "ECHELON_GRES", "ECHELON_SLURM",
    "ECHELON_PBS", "ECHELON_PBS_DIALECT", "ECHELON_SITE", "ECHELON_QUEUES", "ECHELON_SEAL",
    "ECHELON_HOSTS", "ECHELON_HOSTFILE", "ECHELON_SNAPSHOT", "ECHELON_SNAPSHOT_MAX",
    "ECHELON_RDZV", "ECHELON_MODULES", "ECHELON_SETUP", "ECHELON_VENV", "ECHELON_CONDA", "ECHELON_IMAGE", "ECHELON_MOUNT", "ECHELON_CONTAINER_WORKDIR", "ECHELON_CONTAINER_NAME", "ECHELON_CONTAINER_WRITABLE", "ECHELON_CONTAINER_ROOT", "ECHELON_CONTAINER_EXEC", "ECHELON_LAUNCHER_OPTION",
    "ECHELON_RUNS", "ECHELON_DEBUG", "ECHELON_RUN_ID", "ECHELON_RUN_DIR", "ECHELON_NODE_DIR", "ECHELON_FOLDER", "ECHELON_ENCODED", "ECHELON_ATTEMPT",
    "ECHELON_GENERATION", "ECHELON_SUBMIT_DIR",
}  # fmt: skip
EVENT_KINDS = {
    "submitted", "started", "rank_ready", "progress", "checkpoint", "notice", "fault", "generation", "requeued",
    "finished",
}  # fmt: skip
JOB_STATES = {"QUEUED", "STARTING", "RUNNING", "REQUEUED", "SUCCEEDED", "FAILED", "CANCELLED", "LOST"}
SCRIPT_KINDS = {"file", "module", "command"}
EXIT_CODES = {
    "EchelonError": 1, "ConfigError": 2, "EnvironmentProblem": 3, "SchedulerError": 4, "SchedulerUnreachable": 75,
    "RemoteError": 5, "JobFailed": 1,
}  # fmt: skip
NODE_CODES = {
    "requeue": 75,
    "time limit": 124,
    "internal error": 70,
    "lease held": 73,
    "not entered": 78,
}


def test_the_surface_is_what_it_was():
    assert list(COMMANDS) == list(FLAGS)
    assert {name: flags_of(name) for name in COMMANDS} == FLAGS
    assert [option.key for option in OPTIONS] == KEYS
    assert {option.variable for option in OPTIONS} | OUR_OWN == VARIABLES
    assert {kind.value for kind in Kind} == EVENT_KINDS
    assert {state.value for state in JobState} == JOB_STATES
    assert {kind.value for kind in ScriptKind} == SCRIPT_KINDS
    assert {kind.__name__: kind.exit_code for kind in error_kinds()} == EXIT_CODES
    assert NODE_CODES == {
        "requeue": exit_codes.REQUEUE,
        "time limit": exit_codes.TIME_LIMIT,
        "internal error": exit_codes.NO_VERDICT,
        "lease held": exit_codes.LEASE_HELD,
        "not entered": exit_codes.NOT_ENTERED,
    }


def flags_of(name):
    context = click.Context(commands, info_name="echelon", help_option_names=["-h", "--help"])
    command = commands.get_command(context, name)
    inner = click.Context(command, parent=context, info_name=name)
    return {
        flag
        for parameter in command.get_params(inner)
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }


def error_kinds():
    return [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


def test_every_command_says_what_it_is_for():
    context = click.Context(commands, info_name="echelon")
    for name in COMMANDS:
        assert commands.get_command(context, name).help


def test_only_these_states_are_the_end():
    assert {state.value for state in JobState if state.ended} == {"SUCCEEDED", "FAILED", "CANCELLED", "LOST"}
