"""The table of settings. One entry gives flag, ECHELON_ variable, key in echelon.toml, help, `init` and `--explain`."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.backends import REGISTRY, backend
from echelon.config.option import Option, Type
from echelon.environments import ENVIRONMENTS
from echelon.launchers import LAUNCHERS


def _native_options() -> Iterator[Option]:
    """One option for each backend that passes options to its scheduler unchanged."""
    for name in REGISTRY:
        native = backend(name).native_option
        if native is not None:
            yield Option(
                key=name,
                type=Type.NATIVE,
                for_some=True,
                metavar="KEY[=VALUE]",
                names=native.name_pattern,
                names_hint=native.hint,
                help=native.help,
            )


OPTIONS = (
    Option(key="nodes", type=Type.COUNT, short="-N", default=1, least=1, help="Number of nodes."),
    Option(
        key="gpus_per_node",
        type=Type.COUNT,
        short="-g",
        least=1,
        help="GPUs per node, one rank each. Without GPUs: CPU ranks per node. [default: all local GPUs, or 1 CPU rank; "
        "on slurm, pbs and ssh: 1 CPU rank]",
    ),
    Option(key="gpu_type", type=Type.TEXT, for_some=True, help="Type of GPU, for example a100."),
    Option(key="procs_per_node", type=Type.COUNT, least=1, help="Ranks per node, if not one per GPU."),
    Option(key="cpus", type=Type.COUNT, least=1, for_some=True, help="CPUs per node."),
    Option(
        key="mem",
        type=Type.MEMORY,
        for_some=True,
        metavar="SIZE",
        help="Memory per node, for example 64G; 0 for all of it.",
    ),
    Option(
        key="min_nodes",
        type=Type.COUNT,
        least=1,
        help="Continue with at least this many nodes when nodes are lost.",
    ),
    Option(key="spare_nodes", type=Type.COUNT, default=0, help="Extra nodes that replace lost ones."),
    Option(key="time", type=Type.DURATION, help="Time limit of one attempt: 90s, 15m, 2h or 1:30:00."),
    Option(
        key="notice",
        type=Type.DURATION,
        default="60s",
        help="Give the ranks notice this long before the time limit, so that they save and stop.",
    ),
    Option(
        key="requeues",
        type=Type.COUNT,
        default=0,
        help="Requeue at most this often, after exit code 75 or at the time limit.",
    ),
    Option(key="restarts", type=Type.COUNT, default=0, help="Restart all ranks at most this often after a fault."),
    Option(
        key="hang_timeout",
        type=Type.DURATION,
        default="auto",
        can_be_off=True,
        can_be_auto=True,
        help="No progress for this long is a fault; auto learns it from the steps, off disables it.",
    ),
    Option(
        key="grace",
        type=Type.DURATION,
        default="5s",
        help="Time between SIGTERM and SIGKILL when ranks are stopped.",
    ),
    Option(
        key="heartbeat",
        type=Type.DURATION,
        default="15s",
        least=1,
        help="A node without a heartbeat for this long is lost.",
    ),
    Option(key="join_timeout", type=Type.DURATION, default="2m", help="Time within which every node must connect."),
    Option(
        key="preflight",
        type=Type.SWITCH,
        default=False,
        help="Check the nodes before the ranks start, as echelon doctor does. Spare nodes replace those that fail.",
    ),
    Option(
        key="log_max",
        type=Type.MEMORY,
        default="2G",
        metavar="SIZE",
        help="Output kept per rank; beyond this the middle is dropped. 0 keeps all.",
    ),
    Option(key="name", type=Type.TEXT, help="Name of the run. [default: name of the script]"),
    Option(
        key="on",
        type=Type.CHOICE,
        choices=tuple(REGISTRY),
        help="Where to run. [default: the current allocation; otherwise slurm or pbs if sbatch or qsub is on PATH; "
        "otherwise local]",
    ),
    Option(
        key="launcher",
        type=Type.CHOICE,
        default="ranks",
        choices=LAUNCHERS,
        help="Program that starts the ranks: Echelon's agents (ranks), torchrun, accelerate launch or "
        "torch.distributed.launch (legacy) on each node, or one srun or mpirun for all nodes.",
    ),
    Option(
        key="rdzv",
        type=Type.CHOICE,
        default="static",
        choices=("static", "c10d"),
        launchers=("torchrun",),
        help="torchrun's rendezvous. c10d is unsafe on a shared network: it listens on every interface without a "
        "password and unpickles what it reads, so anyone who reaches its port can run code as you.",
    ),
    Option(
        key="env",
        type=Type.CHOICE,
        choices=ENVIRONMENTS,
        help="Environment of the ranks. [default: as --venv, --conda, --image or --container-exec imply, or bare]",
    ),
    Option(key="modules", type=Type.LIST, metavar="NAME", help="Module to load on each node; repeatable."),
    Option(
        key="setup",
        type=Type.LIST,
        metavar="LINE",
        help="Line of bash to run on each node after the modules are loaded; repeatable.",
    ),
    Option(key="venv", type=Type.TEXT, metavar="DIR", help="Virtual environment of the ranks."),
    Option(key="conda", type=Type.TEXT, metavar="NAME|DIR", help="Conda environment of the ranks."),
    Option(
        key="image",
        type=Type.TEXT,
        help="Container image of the ranks: a .sqsh file for enroot, a .sif file for apptainer.",
    ),
    Option(
        key="mount",
        type=Type.LIST,
        metavar="SRC:DST[:ro]",
        help="Folder to mount, besides the run directory and the working directory; repeatable.",
    ),
    Option(
        key="container_workdir",
        type=Type.TEXT,
        metavar="DIR",
        help="Working directory inside the container. [default: the current one]",
    ),
    Option(key="container_name", type=Type.TEXT, metavar="NAME", help="Name of the container, to keep and reuse it."),
    Option(
        key="container_writable",
        type=Type.SWITCH,
        default=False,
        help="Make the container's root file system writable.",
    ),
    Option(key="container_root", type=Type.SWITCH, default=False, help="Run as root inside the container."),
    Option(
        key="container_exec",
        type=Type.WORDS,
        metavar="COMMAND",
        help="Command that runs another command in a container of any other kind: 'ch-run image --'.",
    ),
    Option(
        key="hosts",
        type=Type.HOSTS,
        for_some=True,
        metavar="HOSTS",
        help="Hosts, spare ones last: gpu1,gpu[3-4], or the name of a group in table [hosts] of echelon.toml.",
    ),
    Option(
        key="hostfile",
        type=Type.TEXT,
        for_some=True,
        metavar="FILE",
        help="File with one host per line: gpu1 slots=4.",
    ),
    Option(
        key="snapshot",
        type=Type.SWITCH,
        default=False,
        help="Run a copy of the project as it is now: files that git tracks or does not ignore, without secrets "
        "(.env, keys). Ranks start in the copy; ECHELON_SUBMIT_DIR names the original folder.",
    ),
    Option(
        key="snapshot_max",
        type=Type.MEMORY,
        default="50M",
        metavar="SIZE",
        help="Largest file in a snapshot; the whole snapshot may have ten times that size.",
    ),
    Option(
        key="python",
        type=Type.TEXT,
        help="Python with torch. [default: the one that runs echelon, or the active venv's; on ssh: python3]",
    ),
    Option(key="ports", type=Type.TEXT, metavar="A-B", help="Ports for the rendezvous. [default: any free port]"),
    Option(
        key="interface",
        type=Type.TEXT,
        for_some=True,
        help="Network interface for the rendezvous. [default: the one with a route to the other nodes]",
    ),
    Option(key="cpu", type=Type.SWITCH, default=False, help="Run on CPU."),
    Option(key="cold", type=Type.SWITCH, default=False, help="Start a new Python interpreter for each rank."),
    Option(key="partition", type=Type.TEXT, short="-p", for_some=True, help="Slurm partition or PBS queue."),
    Option(key="account", type=Type.TEXT, short="-A", for_some=True, help="Slurm account or PBS project."),
    Option(key="qos", type=Type.TEXT, for_some=True, help="Slurm quality of service."),
    Option(key="constraint", type=Type.TEXT, for_some=True, help="Required node features."),
    Option(key="reservation", type=Type.TEXT, for_some=True, help="Slurm reservation."),
    Option(key="nodelist", type=Type.TEXT, for_some=True, metavar="HOSTS", help="Nodes to include."),
    Option(key="exclude", type=Type.TEXT, for_some=True, metavar="HOSTS", help="Nodes to exclude."),
    Option(
        key="array",
        type=Type.TEXT,
        for_some=True,
        metavar="INDICES",
        help="One run per index: 0-9, 1,3,5 or 0-99%4 (four at a time).",
    ),
    Option(key="dependency", type=Type.TEXT, for_some=True, help="Start after other jobs, for example afterok:1234."),
    Option(key="mail", type=Type.TEXT, for_some=True, metavar="ADDRESS", help="Address for mail about the job."),
    Option(
        key="mail_type",
        type=Type.TEXT,
        for_some=True,
        help="When to send mail: BEGIN,END,FAIL. [default: END,FAIL]",
    ),
    Option(key="comment", type=Type.TEXT, for_some=True, help="Comment for the scheduler."),
    Option(key="licenses", type=Type.TEXT, for_some=True, help="Licenses that the job needs."),
    Option(
        key="gres",
        type=Type.SWITCH,
        default=False,
        for_some=True,
        help="Request GPUs by --gres, if the site requires it.",
    ),
    Option(
        key="pbs_dialect",
        type=Type.CHOICE,
        default="chunks",
        choices=("chunks", "totals"),
        for_some=True,
        help="How to request nodes from PBS: by -l select, or by totals over all nodes, as on Gadi.",
    ),
    Option(
        key="site",
        type=Type.TEXT,
        help="Site profile with defaults: gadi, or a .toml file of your own.",
    ),
    Option(key="set", type=Type.VARIABLES, metavar="KEY=VALUE", help="Environment variable for the ranks; repeatable."),
    Option(
        key="launcher_option",
        type=Type.NATIVE,
        metavar="KEY[=VALUE]",
        names=r"[A-Za-z][A-Za-z0-9_-]*",
        names_hint="use the launcher's long option name without dashes, for example --launcher-option tee=3",
        launchers=("torchrun", "accelerate", "legacy", "srun", "mpirun"),
        help="Any other option of the launcher, unchanged; repeatable.",
    ),
    *_native_options(),
    Option(
        key="queues",
        type=Type.QUEUES,
        for_some=True,
        has_flag=False,
        help="cpus, gpus and mem_gb of one node of each queue; usually part of a site profile.",
    ),
)
BY_KEY = {option.key: option for option in OPTIONS}
