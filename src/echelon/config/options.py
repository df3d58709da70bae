"""Every setting of a job, once: its flag, its ECHELON_ variable, its key in echelon.toml, its type, its default."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from echelon.environments import ENVIRONMENTS
from echelon.launchers import LAUNCHERS
from echelon.registry import FAMILIES


class Type(enum.Enum):
    COUNT = "a whole number"
    DURATION = "a duration"
    TEXT = "text"
    SWITCH = "true or false"
    CHOICE = "one of a few words"
    VARIABLES = "a table of variables"
    MEMORY = "an amount of memory"
    NATIVE = "options of the scheduler, as it spells them"
    HOSTS = "names of hosts, or a table of groups of them"
    QUEUES = "a table of queues, each with what its nodes have"
    LIST = "a list of texts"
    WORDS = "the words of a command"

    @property
    def is_table(self) -> bool:
        """Given as pairs, one at a time; those of several layers add up."""
        return self in (Type.VARIABLES, Type.NATIVE, Type.QUEUES)

    @property
    def is_repeatable(self) -> bool:
        return self.is_table or self is Type.LIST


@dataclass(frozen=True, kw_only=True)
class Option:
    key: str
    type: Type
    help: str
    default: Any = None
    short: str | None = None
    least: int = 0
    """The smallest number, or the fewest seconds."""
    choices: tuple[str, ...] = ()
    can_be_off: bool = False
    metavar: str | None = None
    only: tuple[str, ...] = ()
    """The schedulers that can do something with it; none named means all."""
    names: str = r"[a-z][a-z0-9-]*"
    """What the names in a table of the scheduler's own options look like."""
    launchers: tuple[str, ...] = ()
    """The launchers that can do something with it; none named means all."""
    has_flag: bool = True
    """Otherwise it is for files alone."""

    @property
    def flag(self) -> str:
        return f"--{self.key.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"ECHELON_{self.key.upper()}"


SLURM, PBS = ("slurm",), ("pbs",)
BATCH = (*SLURM, *PBS)
"""Those with a queue to stand in."""
SSH = ("ssh",)
OTHER_NODES = (*BATCH, "allocation", *SSH)
"""Those whose nodes are other machines than this one."""

PBS_NAME = r"(chunk\.|W\.)?[A-Za-z][A-Za-z0-9_-]*"

OPTIONS = (
    Option(key="nodes", type=Type.COUNT, short="-N", default=1, least=1, help="How many nodes."),
    Option(
        key="gpus_per_node", type=Type.COUNT, short="-g", least=1,
        help="GPUs on each node, one rank for each; ranks alone where there are no GPUs. "
        "[default: all there are, or 1 rank; on slurm, pbs and ssh none, and 1 rank]",
    ),
    Option(key="gpu_type", type=Type.TEXT, only=SLURM, help="Which GPUs, where there are several kinds: a100."),
    Option(key="procs_per_node", type=Type.COUNT, least=1, help="Ranks on each node, where not one per GPU."),
    Option(key="cpus", type=Type.COUNT, least=1, only=(*BATCH, "allocation"), help="CPUs on each node."),
    Option(
        key="mem", type=Type.MEMORY, only=BATCH, metavar="SIZE", help="Memory on each node: 64G; 0 for all of it.",
    ),
    Option(key="min_nodes", type=Type.COUNT, least=1, help="Go on with as few as this when nodes are lost."),
    Option(key="spare_nodes", type=Type.COUNT, default=0, help="Nodes kept in reserve for lost ones."),
    Option(key="time", type=Type.DURATION, help="Time limit of one attempt: 90s, 15m, 2h."),
    Option(
        key="notice", type=Type.DURATION, default="60s",
        help="Tell the ranks to stop soon, this long before the limit.",
    ),
    Option(key="requeues", type=Type.COUNT, default=0, help="How often exit code 75 or the time limit requeues."),
    Option(key="restarts", type=Type.COUNT, default=0, help="How often a fault starts all ranks again."),
    Option(
        key="hang_timeout", type=Type.DURATION, default="30m", can_be_off=True,
        help="No progress for this long is a fault; 'off' waits for ever.",
    ),
    Option(key="grace", type=Type.DURATION, default="5s", help="Between TERM and KILL."),
    Option(
        key="heartbeat", type=Type.DURATION, default="15s", least=1, help="A node silent for this long is lost.",
    ),
    Option(key="join_timeout", type=Type.DURATION, default="2m", help="How long every node has to come up."),
    Option(key="name", type=Type.TEXT, help="Name of the run. [default: the script's]"),
    Option(
        key="on", type=Type.CHOICE, choices=tuple(FAMILIES["scheduler"]),
        help="Scheduler. [default: the allocation this is run in, else slurm or pbs where sbatch or qsub is found, "
        "else local]",
    ),
    Option(
        key="launcher", type=Type.CHOICE, default="ranks", choices=LAUNCHERS,
        help="What starts the ranks: our own agents, or on each node torchrun, accelerate launch or "
        "torch.distributed.launch, or for all nodes Slurm's srun or Open MPI's mpirun.",
    ),
    Option(
        key="rdzv", type=Type.CHOICE, default="static", choices=("static", "c10d"), launchers=("torchrun",),
        help="How torchrun's agents meet. By c10d they listen on every interface, ask nobody for a password, and "
        "unpickle what they read: whoever reaches that port runs code as you.",
    ),
    Option(
        key="env", type=Type.CHOICE, choices=ENVIRONMENTS,
        help="What the ranks run in. [default: what --venv, --conda, --image or --container-exec mean, else bare]",
    ),
    Option(key="modules", type=Type.LIST, metavar="NAME", help="Load this module on each node; repeatable."),
    Option(
        key="setup", type=Type.LIST, metavar="LINE", help="A line of bash for each node, after the modules; repeatable."
    ),
    Option(key="venv", type=Type.TEXT, metavar="DIR", help="Virtual environment of the ranks."),
    Option(key="conda", type=Type.TEXT, metavar="NAME|DIR", help="Conda environment of the ranks."),
    Option(
        key="image", type=Type.TEXT,
        help="Container image of the ranks: a .sqsh file is enroot's, a .sif file apptainer's.",
    ),
    Option(
        key="mount", type=Type.LIST, metavar="SRC:DST[:ro]",
        help="A folder that the container sees, besides the run's own and the working directory; repeatable.",
    ),
    Option(key="container_workdir", type=Type.TEXT, metavar="DIR", help="Where ranks start. [default: as outside]"),
    Option(key="container_name", type=Type.TEXT, metavar="NAME", help="Name of the container, to use it again."),
    Option(key="container_writable", type=Type.SWITCH, default=False, help="Let ranks write to its root."),
    Option(key="container_root", type=Type.SWITCH, default=False, help="Let ranks be root inside of it."),
    Option(
        key="container_exec", type=Type.WORDS, metavar="COMMAND",
        help="The words that put a command into a container of any other kind: 'ch-run image --'.",
    ),
    Option(
        key="hosts", type=Type.HOSTS, only=SSH, metavar="HOSTS",
        help="Hosts, spares last: gpu1,gpu[3-4], or a group from the table [hosts] of a file.",
    ),
    Option(key="hostfile", type=Type.TEXT, only=SSH, metavar="FILE", help="Hosts, one a line: gpu1 slots=4."),
    Option(
        key="snapshot", type=Type.SWITCH, default=False,
        help="Run a copy of the project as it is now: what git tracks, and what is new and not ignored; no secrets "
        "(.env, keys). Ranks start in the copy, so relative paths lead there: ECHELON_SUBMIT_DIR is the folder you are "
        "in.",
    ),
    Option(
        key="snapshot_max", type=Type.MEMORY, default="50M", metavar="SIZE",
        help="Files larger than this are not in the snapshot; all of it may have ten times as much.",
    ),
    Option(
        key="python", type=Type.TEXT,
        help="The Python that has torch. [default: this one, or the active venv's; on ssh the hosts' python3]",
    ),
    Option(key="ports", type=Type.TEXT, metavar="A-B", help="Ports for the rendezvous. [default: any free one]"),
    Option(
        key="interface", type=Type.TEXT, only=OTHER_NODES,
        help="Network interface that ranks meet on. [default: the one that leads to the other nodes]",
    ),
    Option(key="cpu", type=Type.SWITCH, default=False, help="Leave the GPUs alone."),
    Option(key="cold", type=Type.SWITCH, default=False, help="Start each rank as an interpreter of its own."),
    Option(
        key="partition", type=Type.TEXT, short="-p", only=BATCH, help="Part of the cluster to queue for; a PBS queue."
    ),
    Option(key="account", type=Type.TEXT, short="-A", only=BATCH, help="Account that pays; a PBS project."),
    Option(key="qos", type=Type.TEXT, only=SLURM, help="Quality of service."),
    Option(key="constraint", type=Type.TEXT, only=SLURM, help="Features that nodes must have."),
    Option(key="reservation", type=Type.TEXT, only=SLURM, help="Reservation to run in."),
    Option(key="nodelist", type=Type.TEXT, only=SLURM, metavar="HOSTS", help="Nodes that must be among ours."),
    Option(key="exclude", type=Type.TEXT, only=SLURM, metavar="HOSTS", help="Nodes that must not."),
    Option(
        key="array", type=Type.TEXT, only=SLURM, metavar="INDICES",
        help="One run for each index: 0-9, 1,3,5 or 0-99%4 (four at a time).",
    ),
    Option(key="dependency", type=Type.TEXT, only=BATCH, help="Start only after other jobs: afterok:1234."),
    Option(key="mail", type=Type.TEXT, only=BATCH, metavar="ADDRESS", help="Who gets mail about the job."),
    Option(key="mail_type", type=Type.TEXT, only=BATCH, help="When: BEGIN,END,FAIL. [default: END,FAIL]"),
    Option(key="comment", type=Type.TEXT, only=SLURM, help="A remark that the scheduler keeps."),
    Option(key="licenses", type=Type.TEXT, only=SLURM, help="Licences the job holds while it runs."),
    Option(
        key="gres", type=Type.SWITCH, default=False, only=SLURM, help="Ask for GPUs by --gres, where the site wants it."
    ),
    Option(
        key="pbs_dialect", type=Type.CHOICE, default="chunks", choices=("chunks", "totals"), only=PBS,
        help="How PBS is asked for nodes: by -l select, or by what all of them have together, as on Gadi.",
    ),
    Option(
        key="site", type=Type.TEXT,
        help="Profile of a site, for what nobody else says: gadi, or a file of your own, ending in .toml.",
    ),
    Option(key="set", type=Type.VARIABLES, metavar="KEY=VALUE", help="A variable for the ranks; repeatable."),
    Option(
        key="launcher_option", type=Type.NATIVE, metavar="KEY[=VALUE]", names=r"[A-Za-z][A-Za-z0-9_-]*",
        launchers=("torchrun", "accelerate", "legacy", "srun", "mpirun"),
        help="Any other option of the launcher, as it is; repeatable.",
    ),
    Option(
        key="slurm", type=Type.NATIVE, only=SLURM, metavar="KEY[=VALUE]",
        help="Any other option of sbatch, as it is; repeatable.",
    ),
    Option(
        key="pbs", type=Type.NATIVE, only=PBS, metavar="KEY[=VALUE]", names=PBS_NAME,
        help="Anything else for qsub, as it is; repeatable. NAME is a resource of the job (-l NAME=VALUE: "
        "storage=gdata/ab12, jobfs=100GB, wd), chunk.NAME one of every chunk (select=..:NAME=VALUE), W.NAME an "
        "attribute (-W NAME=VALUE: W.group_list=ab12), and a single letter an option of qsub (a=1200 is -a 1200).",
    ),
    Option(
        key="queues", type=Type.QUEUES, only=PBS, has_flag=False,
        help="What one node of each queue has: cpus, gpus, mem_gb; mostly in a site's profile.",
    ),
)  # fmt: skip
BY_KEY = {option.key: option for option in OPTIONS}
