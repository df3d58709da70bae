"""The command that starts the ranks of one node, in plain scripts: the launchers' own, with variables of the script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from echelon.command import exports, folded, variable
from echelon.job import Job, ScriptKind
from echelon.launchers import Where, launcher_of
from echelon.launchers.accelerate import configuration
from echelon.plain import launcher_name

RANK = ("bash", "-c", 'rank "$@"', "rank")


def launch(job: Job, environ: Mapping[str, str], *, ending: str = "", prefix: Sequence[str] = ()) -> tuple[str, ...]:
    """The launcher of one node, whose number is the first argument of the function that it stands in."""
    name = launcher_name(job)
    command = launcher_of(name).command(job, _where(job, name, environ), (*RANK, *script_words(job)), {})
    return (*exports(command.env), *folded((*prefix, *command.argv), ending))


def _where(job: Job, name: str, environ: Mapping[str, str]) -> Where:
    port = variable("MASTER_PORT")
    return Where(
        node_rank=variable("1"), is_first=variable("is_host"), nodes=job.resources.nodes,
        procs_per_node=job.resources.procs_per_node, main_address=variable("MASTER_ADDR"), main_port=port,
        own_address=variable("own"), launcher_port=port, hosts=(), folder=variable("JOB_STATE"),
        config=configuration(job, environ) if name == "accelerate" else "",
    )  # fmt: skip


def script_words(job: Job) -> tuple[str, ...]:
    script = job.script
    if script.kind is ScriptKind.COMMAND:
        return (script.target, *script.args)
    module = ("-m",) if script.kind is ScriptKind.MODULE else ()
    return (job.python, "-u", *module, script.target, *script.args)
