"""Derives the `echelon run` command from a parsed script. Pure."""

from __future__ import annotations

from collections.abc import Callable

from echelon.lint.directives import Dialect
from echelon.lint.launches import Launch
from echelon.lint.migrate.environment import add_environment
from echelon.lint.migrate.pbs_request import add_pbs_request
from echelon.lint.migrate.request import add_slurm_request
from echelon.lint.migrate.typed import Words, as_typed
from echelon.lint.model import Replacement, names
from echelon.lint.rules._common import runs_program, step_tasks_per_node
from echelon.lint.script import JobScript, Source, parse_script
from echelon.lint.values import readable

COUNTS = names(
    "num-processes num-machines machine-rank main-process-ip main-process-port rdzv-backend multi-gpu nnodes "
    "nproc-per-node same-network num-cpu-threads-per-process max-restarts tee role cpu rdzv-endpoint rdzv-id "
    "node-rank master-addr master-port"
)
"""Options of launchers that echelon sets or makes superfluous."""
TRAINING = r"torch|python|MASTER_ADDR|\.py\b"
"""Signs of a script that trains. For others echelon is no replacement."""
OWN_PROGRAM = r"echelon\.pyz"
"""In scripts that echelon itself has made."""
ALL_ARGUMENTS = ("@", "*")


def find_replacement(script: JobScript, companion: Callable[[str], Source | None]) -> Replacement | None:
    """None if the script is not a job script, or launches nothing. `companion` finds scripts that it runs."""
    own = [one for one in script.launches if runs_program(one)]
    if not script.is_batch or not own or script.mentions(rf"/{OWN_PROGRAM}\b"):
        return None
    inner, launch = script, _main_launch(own)
    if launch is None:
        inner, launch = _follow(own[-1], companion)
    target = _target(launch) if launch is not None else None
    if launch is None or target is None:
        return _no_replacement(script, own[-1]) if script.mentions(TRAINING) else None
    words = Words()
    _add_request(words, script)
    _add_launcher(words, script, launch)
    if inner is not script:
        add_environment(words, script, own[-1])
    add_environment(words, inner, launch)
    words.words += [*target, *_arguments(words, launch)]
    _note_others(words, own, launch if inner is script else own[-1])
    return Replacement(
        path=script.source.path,
        line=script.source.first_line,
        command=("echelon", "run", *words.words),
        missing=tuple(words.missing),
    )


def _follow(launch: Launch, companion: Callable[[str], Source | None]) -> tuple[JobScript, Launch | None]:
    """The script that `srun bash task.sh` runs on the nodes, and what it launches."""
    name = next((word for word in launch.words[:3] if word.endswith((".sh", ".bash"))), "").rpartition("/")[2]
    source = companion(name) if name else None
    script = parse_script(source) if source is not None else None
    if not isinstance(script, JobScript):
        return JobScript(Source(path="", text="")), None
    return script, _main_launch([one for one in script.launches if runs_program(one)])


def _main_launch(own: list[Launch]) -> Launch | None:
    """The last launcher of ranks, or the last Python program."""
    ranks = [one for one in own if one.is_distributed]
    programs = ranks or [one for one in own if one.kind == "python"]
    return programs[-1] if programs else None


def _no_replacement(script: JobScript, launch: Launch) -> Replacement:
    shown = " ".join(readable(word) for word in launch.words[:3])
    return Replacement(
        path=script.source.path,
        line=script.source.first_line,
        command=None,
        missing=(f"line {launch.command.line}: {shown} does not show which Python script it runs",),
    )


def _add_request(words: Words, script: JobScript) -> None:
    if script.dialect is Dialect.QSUB:
        add_pbs_request(words, script.request)
        return
    by_hand = any(expanded[:2] == ("scontrol", "requeue") for _, _, expanded in script.commands)
    add_slurm_request(words, script.request, requeues=by_hand)


def _add_launcher(words: Words, script: JobScript, launch: Launch) -> None:
    processes = _processes_per_node(script, launch)
    default = words.gpus or 1
    if processes is not None and processes != default:
        words.flag("--procs-per-node", processes)
    restarts = launch.option("max-restarts")
    if restarts is not None and restarts.value.isdigit() and restarts.value != "0":
        words.flag("--restarts", restarts.value)
    if launch.kind == "legacy" and launch.option("use-env") is None:
        words.flag("--launcher", "legacy")
    if launch.kind != "accelerate":
        return
    kept = {name: option for name, option in launch.options.items() if name not in COUNTS}
    if kept:
        words.flag("--launcher", "accelerate")
    for name, option in kept.items():
        typed = as_typed(option.value)
        if typed is None:
            words.leave_out(f"{option.word} {readable(option.value)}", option.line)
        else:
            key = name.replace("-", "_")
            words.words += ["--launcher-option", f"{key}={typed}" if option.value else key]


def _processes_per_node(script: JobScript, launch: Launch) -> int | None:
    option = launch.option("nproc-per-node")
    if option is not None:
        return script.number(option.value)
    if launch.kind == "python" and launch.uses_srun:
        return step_tasks_per_node(script, launch)
    return None


def _target(launch: Launch) -> list[str] | None:
    typed = [as_typed(word) for word in launch.target]
    if not typed or None in typed or (len(typed) == 1 and launch.target[0].startswith("-")):
        return None
    return [word for word in typed if word is not None]


def _arguments(words: Words, launch: Launch) -> list[str]:
    typed = []
    for argument in launch.arguments:
        word = as_typed(argument)
        if word is not None:
            typed.append(word)
        elif readable(argument).strip("${}") in ALL_ARGUMENTS:
            words.leave_out("the arguments of the script ($@): type them at the end", launch.command.line)
        else:
            words.leave_out(f"the argument {readable(argument)}: its value exists only in the job", launch.command.line)
    return typed


def _note_others(words: Words, own: list[Launch], launch: Launch) -> None:
    for other in own:
        if other.index != launch.index:
            shown = " ".join(readable(word) for word in other.words[:3])
            words.leave_out(f"{shown} (a run starts one program)", other.command.line)
