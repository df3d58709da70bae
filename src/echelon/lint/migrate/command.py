"""Derives the `echelon run` command from a parsed script. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from echelon.lint.directives import Dialect
from echelon.lint.launches import Launch
from echelon.lint.migrate.environment import add_environment
from echelon.lint.migrate.pbs_request import add_pbs_request
from echelon.lint.migrate.program import main_launch, program_words, shown
from echelon.lint.migrate.request import add_slurm_request, step_request
from echelon.lint.migrate.typed import UnclearError, Words, plain_text
from echelon.lint.model import Replacement, names
from echelon.lint.mpi_options import MPI
from echelon.lint.request import Request
from echelon.lint.rules._common import requeues_itself, runs_program
from echelon.lint.script import JobScript, Source, parse_script
from echelon.lint.slurm_options import UNKNOWN
from echelon.lint.values import readable

COUNTS = names(
    "num-processes num-machines machine-rank main-process-ip main-process-port rdzv-backend multi-gpu nnodes "
    "nproc-per-node same-network num-cpu-threads-per-process max-restarts tee role cpu rdzv-endpoint rdzv-id "
    "node-rank master-addr master-port standalone m module use-env no-python rdzv-conf monitor-interval local-addr "
    "num-gpus num-nodes hostfile log-dir redirects start-method r t no-ssh launcher no-local-rank"
)
"""Options of launchers that echelon sets or makes superfluous."""
STEP_OPTIONS = names(
    "nodes ntasks ntasks-per-node cpus-per-task gpus-per-task gpus-per-node gpus gres kill-on-bad-exit label "
    "unbuffered output error mpi overlap exact verbose quiet wait het-group job-name container-image "
    "container-mounts time mem nodelist partition account"
)
"""Options of srun that are carried over, or that a run does not need."""
TRAINING = r"torch|python|MASTER_ADDR|\.py\b"
"""Signs of a script that trains. For others echelon is no replacement."""
OWN_PROGRAM = r"echelon\.pyz"
"""In scripts that echelon itself has made."""
SMALL = names(
    "echo printf date hostname pwd ls cat nvidia-smi rocm-smi env printenv which type set unset export trap wait sleep "
    "ulimit mkdir test [ [[ true false : exit return shopt read mapfile local declare scontrol sinfo squeue sacct "
    "lscpu free df du nproc module ml source . conda mamba micromamba cd pushd popd eval uname whoami head tail wc "
    "sort uniq grep awk sed tr cut basename dirname realpath readlink hash kill scancel shift getopts let break "
    "continue id lspci qstat"
)
"""Commands that a run does not miss, and those of the environment, which have flags."""
MPI_PROGRAMS = r"mpi4py|MPICH_|=mpi\b|(?i:horovod|\bhvd\b)"
FILE_TOOLS = names(
    "cp mv rm rsync scp tar zip unzip gzip gunzip wget curl git pip pip3 touch ln chmod find xargs sync tee bc seq make"
)
"""Commands that are named, but are certainly not what the job is about."""
MOST_NOTES = 5


def find_replacement(script: JobScript, companion: Callable[[str], Source | None]) -> Replacement | None:
    """None if the script is not a job script, or launches nothing. `companion` finds scripts that it runs."""
    own = [one for one in script.launches if runs_program(one)]
    if not script.is_batch or not own or script.mentions(rf"/{OWN_PROGRAM}\b"):
        return None
    words: tuple[str, ...] | None = None
    try:
        words, missing = _command(script, own, companion)
    except UnclearError as error:
        if not script.mentions(TRAINING):
            return None
        missing = (plain_text(str(error)),)
    return Replacement(path=script.source.path, line=script.source.first_line, command=words, missing=missing)


def _command(
    script: JobScript, own: Sequence[Launch], companion: Callable[[str], Source | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    inner, outer = script, main_launch(own)
    if outer is not None:
        _refuse_parallel(script, outer)
        _refuse_helper(script, outer)
    launch = outer
    if outer is None or launch is None:
        outer = own[-1]
        inner, launch = _follow(outer, companion)
    words, step = Words(script, inner), step_request(script, outer)
    _add_request(words, script, step)
    _add_launcher(words, launch, _processes(words, script, launch, outer, step))
    _note_step(words, outer)
    _note_mpi(words, script, launch, outer)
    if inner is not script:
        add_environment(words, script, outer)
    add_environment(words, inner, launch)
    words.words += program_words(words, launch)
    _note_others(words, script, own, outer)
    words.note_outside()
    return ("echelon", "run", *words.words), tuple(words.missing)


def _refuse_parallel(script: JobScript, launch: Launch) -> None:
    """Raises UnclearError if another program runs at the same time, such as a server."""
    for other in script.launches if launch.command.scope.background else ():
        if other.command.scope.background and other.index != launch.index:
            line = f"line {other.command.line}"
            raise UnclearError(f"{line}: {shown(other.words)} runs at the same time; a run starts one program")


def _refuse_helper(script: JobScript, launch: Launch) -> None:
    """Raises UnclearError if one Python process is beside a program that may be what the job is about."""
    for _, (found, line) in _other_commands(script) if launch.starter is None and not launch.is_distributed else ():
        if found[0].rpartition("/")[2] not in FILE_TOOLS:
            target = plain_text(" ".join(launch.target))
            raise UnclearError(f"line {line}: the script starts {shown(found)} and {target}; use one run for each")


def _follow(launch: Launch, companion: Callable[[str], Source | None]) -> tuple[JobScript, Launch]:
    """The script that `srun bash task.sh` runs on the nodes, and what it launches. Raises UnclearError."""
    name = next((word for word in launch.words[:3] if word.endswith((".sh", ".bash"))), "").rpartition("/")[2]
    source = companion(name) if name else None
    script = parse_script(source) if source is not None else None
    found = None
    if isinstance(script, JobScript):
        found = main_launch([one for one in script.launches if runs_program(one)])
    if found is None or not isinstance(script, JobScript):
        raise UnclearError(
            f"line {launch.command.line}: {shown(launch.words)} does not show which Python script it runs"
        )
    return script, found


def _add_request(words: Words, script: JobScript, step: Request) -> None:
    if script.dialect is Dialect.QSUB:
        add_pbs_request(words, script.request)
        return
    by_hand = any(requeues_itself(expanded) for _, _, expanded in script.commands)
    add_slurm_request(words, step, requeues=by_hand)


def _processes(words: Words, script: JobScript, launch: Launch, outer: Launch, step: Request) -> int | None:
    """Ranks per node. None for one per GPU. Raises UnclearError."""
    line = launch.command.line
    if launch.is_distributed:
        return _launcher_processes(words, script, launch, step)
    if outer.starter is None:
        if script.request.is_multi_node:
            raise UnclearError(f"line {line}: Python starts on the first of {script.request.nodes} nodes only")
        return 1
    if step.tasks_per_node is None or UNKNOWN in outer.starter_options or outer.starter not in {"srun", *MPI}:
        words.leave_out(f"the number of processes that {outer.starter} starts: add --procs-per-node", line)
        return None
    return step.tasks_per_node


def _launcher_processes(words: Words, script: JobScript, launch: Launch, step: Request) -> int | None:
    option, total = launch.option("nproc-per-node", "num-gpus"), launch.option("num-processes")
    number = script.number(option.value) if option is not None else None
    if option is None and total is not None:
        number = script.number(total.value)
        number = number // step.nodes if number is not None and step.nodes and number % step.nodes == 0 else None
    given = option or total
    by_gpus = given is not None and (given.value in ("gpu", "auto") or ("GPU" in given.value.upper() and words.gpus))
    if given is not None and number is None and not by_gpus:
        words.leave_out(f"{given.word} {readable(given.value)}: add --procs-per-node", given.line)
    return number


def _add_launcher(words: Words, launch: Launch, processes: int | None) -> None:
    if processes is not None and processes != (words.gpus or 1):
        words.flag("--procs-per-node", processes)
    restarts = launch.option("max-restarts")
    if restarts is not None and restarts.value.isdigit() and restarts.value != "0":
        words.flag("--restarts", restarts.value)
    if launch.kind == "legacy" and launch.option("use-env") is None:
        words.flag("--launcher", "legacy")
    kept = {name: option for name, option in launch.options.items() if name not in COUNTS}
    if launch.kind == "accelerate" and kept:
        words.flag("--launcher", "accelerate")
    for name, option in kept.items():
        typed = words.typed(option.value)
        if typed is None or launch.kind != "accelerate":
            words.leave_out(f"{option.word} {option.value}".strip(), option.line)
        else:
            key = name.replace("-", "_")
            words.words += ["--launcher-option", f"{key}={typed}" if option.value else key]


def _note_step(words: Words, launch: Launch) -> None:
    """The options of srun that have no counterpart."""
    for name, value in launch.starter_options.items() if launch.uses_srun else ():
        if name == UNKNOWN:
            words.leave_out(f"the options of srun in {readable(value)}", launch.command.line)
        elif name not in STEP_OPTIONS and not name.startswith("no-container"):
            words.leave_out(f"--{name}={value} of srun" if value else f"--{name} of srun", launch.command.line)


def _note_mpi(words: Words, script: JobScript, launch: Launch, outer: Launch) -> None:
    """Ranks that echelon starts itself do not find each other by MPI."""
    by_mpi = launch.kind == "python" and outer.starter is not None and outer.starter != "srun"
    by_srun = launch.kind == "python" and outer.uses_srun
    if by_srun and ("mpi" in outer.starter_options or script.mentions(MPI_PROGRAMS)):
        words.leave_out("the start by srun: if the program uses MPI, add --launcher srun", outer.command.line)
    elif by_mpi:
        words.leave_out(f"{outer.starter}: if the program uses MPI, add --launcher mpirun", outer.command.line)


def _note_others(words: Words, script: JobScript, own: Sequence[Launch], launch: Launch) -> None:
    """Other programs of the script: a run starts one."""
    started = [one for one in script.launches if one in own or not _is_question(one)]
    others: dict[int, tuple[Sequence[str], int]] = {
        one.index: (one.words, one.command.line) for one in started if one.index != launch.index
    }
    others |= dict(_other_commands(script))
    for _, (found, line) in sorted(others.items())[:MOST_NOTES]:
        words.leave_out(f"{shown(found)} (a run starts one program)", line)
    if len(others) > MOST_NOTES:
        words.leave_out(f"{len(others) - MOST_NOTES} more commands of the script")


def _is_question(launch: Launch) -> bool:
    """`srun hostname` and `python --version`."""
    return launch.words[0] in SMALL or launch.target[:1] in (("--version",), ("-V",), ()) or "--version" in launch.words


def _other_commands(script: JobScript) -> Iterator[tuple[int, tuple[Sequence[str], int]]]:
    """The index, words and line of each command that is no launch."""
    piped = {id(stage) for _, command, _ in script.commands for stage in command.pipe_to}
    launched = {one.index for one in script.launches}
    for index, command, expanded in script.commands:
        is_small = not command.name or command.name in SMALL or command.name in script.shell.functions
        if index not in launched and not is_small and id(command) not in piped:
            yield index, (expanded, command.line)
