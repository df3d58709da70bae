"""The help of run, submit and render: options in groups, the common ones first; --help-all shows every option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from echelon.backends import all_backends
from echelon.config.option import Option, Type
from echelon.config.options import BY_KEY

NATIVE = tuple(one.name for one in all_backends() if one.native_option is not None)
"""Settings that pass any other option of a scheduler through."""
GROUPS: dict[str, tuple[str, ...]] = {
    "What to run": ("name", "python", "set", "snapshot", "snapshot_max"),
    "Where": ("on", "hosts", "hostfile", "site", "cpu"),
    "How many": ("nodes", "gpus_per_node", "procs_per_node", "cpus", "mem", "gpu_type"),
    "Keep it running": (
        "time",
        "notice",
        "requeues",
        "restarts",
        "hang_timeout",
        "spare_nodes",
        "min_nodes",
        "preflight",
    ),
    "Environment": (
        "modules",
        "setup",
        "venv",
        "conda",
        "image",
        "mount",
        "env",
        "container_workdir",
        "container_name",
        "container_writable",
        "container_root",
        "container_exec",
    ),
    "Scheduler options": (
        "partition",
        "account",
        "array",
        *NATIVE,
        "qos",
        "constraint",
        "reservation",
        "nodelist",
        "exclude",
        "dependency",
        "mail",
        "mail_type",
        "comment",
        "licenses",
        "gres",
        "pbs_dialect",
    ),
    "Advanced": (
        "launcher",
        "launcher_option",
        "rdzv",
        "cold",
        "grace",
        "heartbeat",
        "join_timeout",
        "log_max",
        "ports",
        "interface",
    ),
}
RARE = frozenset(
    {
        "snapshot_max",
        "hostfile",
        "gpu_type",
        "setup",
        "env",
        "qos",
        "constraint",
        "reservation",
        "nodelist",
        "exclude",
        "dependency",
        "mail",
        "mail_type",
        "comment",
        "licenses",
        "gres",
        "pbs_dialect",
        "launcher_option",
        "rdzv",
        "cold",
        "grace",
        "heartbeat",
        "join_timeout",
        "log_max",
        "ports",
        "interface",
    }.union(key for key in GROUPS["Environment"] if key.startswith("container_"))
)
"""Options that only --help-all shows."""
EXAMPLES = (
    "echelon {command} train.py --lr 1e-4                    here, or as a batch job",
    "echelon {command} -N 2 -g 4 -p gpu --time 12h train.py  2 nodes x 4 GPUs",
    "echelon {command} --restarts 3 --requeues 4 train.py    restart and requeue",
)


def write_examples(formatter: click.HelpFormatter, command: str) -> None:
    formatter.write_paragraph()
    for line in EXAMPLES:
        text = line.format(command=command)
        formatter.write(f"  {text}\n" if len(text) + 2 <= formatter.width else f"  {re.split('  +', text)[0]}\n")


def write_groups(formatter: click.HelpFormatter, others: Sequence[tuple[str, str]], *, everything: bool) -> None:
    """`others` are the rows of options that are no settings, such as --debug."""
    for title, keys in GROUPS.items():
        shown = [BY_KEY[key] for key in keys if everything or key not in RARE]
        with formatter.section(title):
            formatter.write_dl([_help_row(option, everything=everything) for option in shown], col_max=26)
    with formatter.section("Other"):
        formatter.write_dl(others, col_max=26)


def help_text(option: Option) -> str:
    default = option.default not in (None, False, 0)
    return f"{option.help} [default: {option.default}]" if default else option.help


def _help_row(option: Option, *, everything: bool) -> tuple[str, str]:
    names = ", ".join(filter(None, (option.short, option.flag)))
    text = help_text(option) if everything else " ".join(_short_help(help_text(option)))
    return f"{names} {metavar(option)}".rstrip(), text


def _short_help(text: str) -> Iterator[str]:
    """The first sentence, and the default if it is short."""
    yield re.split(r"(?<=\.) ", text, maxsplit=1)[0]
    default = re.search(r"\[default: [^]]{1,20}\]$", text)
    if default is not None:
        yield default[0]


def metavar(option: Option) -> str:
    if option.type is Type.SWITCH:
        return ""
    words = {Type.COUNT: "N", Type.DURATION: "TIME", Type.CHOICE: "|".join(option.choices)}
    return option.metavar or words.get(option.type, "TEXT")


OTHER_TOOL_FLAGS = {
    **dict.fromkeys(("--gpus", "--gpu", "--ngpus", "--num-gpus", "--gpus-per-task", "--ngpus-per-node", "-G"), "-g N"),
    **dict.fromkeys(("--nnodes", "--num-nodes", "--num_nodes"), "-N N"),
    **dict.fromkeys(
        ("--nproc-per-node", "--nproc_per_node", "--ntasks-per-node", "--num-processes", "--num_processes", "-n"),
        "--procs-per-node N",
    ),
    **dict.fromkeys(("--queue", "-q"), "-p NAME"),
    **dict.fromkeys(("--walltime", "--time-limit", "--timeout", "-t"), "--time 2h"),
    **dict.fromkeys(("--job-name", "-J"), "--name NAME"),
    **dict.fromkeys(("--scheduler", "--backend"), "--on slurm, pbs, ssh or local"),
    **dict.fromkeys(("--export", "--env-var", "-x"), "--set NAME=VALUE"),
    **dict.fromkeys(("--max-restarts", "--max_restarts"), "--restarts N"),
    **dict.fromkeys(("--requeue",), "--requeues N"),
    **dict.fromkeys(("--container-image", "--container"), "--image FILE"),
    **dict.fromkeys(("--container-mounts", "--bind", "-B", "-v", "--volume"), "--mount SRC:DST"),
    **dict.fromkeys(("--master-port", "--master_port"), "--ports A-B"),
    **dict.fromkeys(("--cpus-per-task", "-c"), "--cpus N, which counts per node"),
    **dict.fromkeys(("--dry-run", "--test-only"), "echelon render, which starts nothing"),
    **dict.fromkeys(("--detach", "-d"), "echelon submit, which returns at once"),
}
"""Flags of torchrun, sbatch, qsub, accelerate and docker, each with the Echelon flag or command to use instead."""
