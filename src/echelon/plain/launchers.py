"""The command that starts the ranks of one node, in plain scripts."""

from __future__ import annotations

from collections.abc import Sequence

from echelon.command import folded, variable
from echelon.job import Job, ScriptKind
from echelon.plain import launcher_of


def launch(job: Job, *, ending: str = "", prefix: Sequence[str] = ()) -> tuple[str, ...]:
    """The launcher of one node, whose number is the first argument of the function that it stands in."""
    first, *groups, last = _GROUPS[launcher_of(job)](job)
    return folded([(*prefix, *first), *groups, (*last, *_rank_words(job))], ending)


def _python(job: Job) -> str:
    return "python" if job.enclosure.venv is not None else job.python


def script_words(job: Job) -> tuple[str, ...]:
    script = job.script
    if script.kind is ScriptKind.COMMAND:
        return (script.target, *script.args)
    module = ("-m",) if script.kind is ScriptKind.MODULE else ()
    return (_python(job), "-u", *module, script.target, *script.args)


def _rank_words(job: Job) -> tuple[str, ...]:
    """`rank` with the script; the legacy launcher gives a Python script its local rank as an argument."""
    words = script_words(job)
    if launcher_of(job) != "legacy" or job.script.kind is ScriptKind.COMMAND:
        return ("bash", "-c", 'rank "$@"', "rank", *words)
    before = len(words) - len(job.script.args)
    text = f'rank "${{@:1:{before}}}" "--local-rank=$LOCAL_RANK" "${{@:{before + 1}}}"'
    return ("bash", "-c", text, "rank", *words)


def _options(job: Job) -> tuple[str, ...]:
    given = job.launching.options.items()
    return tuple(word for name, value in given for word in (f"--{name}", *([value] if value else [])))


def _torchrun(job: Job) -> list[tuple[str, ...]]:
    size = ("--nnodes", str(job.resources.nodes), "--nproc-per-node", str(job.resources.procs_per_node))
    start = (_python(job), "-m", "torch.distributed.run")
    if job.launching.rdzv == "c10d":
        meeting: tuple[str, ...] = (
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{variable('MASTER_ADDR')}:{variable('MASTER_PORT')}"),
            *("--rdzv-id", variable("MASTER_PORT"), "--rdzv-conf", f"is_host={variable('is_host')}"),
        )
    else:
        meeting = ("--node-rank", variable("1"), *_address())
    return [(*start, *size), (*meeting, "--max-restarts", "0"), _options(job), ("--no-python",)]


def _address() -> tuple[str, ...]:
    return ("--master-addr", variable("MASTER_ADDR"), "--master-port", variable("MASTER_PORT"))


def _legacy(job: Job) -> list[tuple[str, ...]]:
    size = ("--nnodes", str(job.resources.nodes), "--nproc-per-node", str(job.resources.procs_per_node))
    start = (_python(job), "-m", "torch.distributed.launch")
    return [(*start, *size), ("--node-rank", variable("1"), *_address()), _options(job), ("--use-env", "--no-python")]


def _accelerate(job: Job) -> list[tuple[str, ...]]:
    nodes, world = job.resources.nodes, job.resources.nodes * job.resources.procs_per_node
    several = ("--multi_gpu",) if world > 1 else ()  # its word for several ranks, also on CPU
    size = ("--num_machines", str(nodes), "--num_processes", str(world), *several)
    address, port = variable("MASTER_ADDR"), variable("MASTER_PORT")
    meeting = ("--main_process_ip", address, "--main_process_port", port, "--same_network")
    start = (_python(job), "-m", "accelerate.commands.launch")
    return [
        (*start, *size),
        ("--machine_rank", variable("1"), *meeting),
        _options(job),
        ("--no_python",),
    ]


_GROUPS = {"torchrun": _torchrun, "accelerate": _accelerate, "legacy": _legacy}
