"""`--launcher accelerate`: one `accelerate launch` per node. Its configuration file stays in effect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.job import Job
from echelon.launchers import LaunchContext, Launcher, option_flags
from echelon.shell import Command

RESERVED_OPTIONS = {
    **dict.fromkeys(("num-machines",), "--nodes"),
    **dict.fromkeys(("num-processes",), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("max-restarts",), "--restarts"),
    **dict.fromkeys(("main-process-port",), "--ports"),
    **dict.fromkeys(("cpu",), "--cpu"),
    **dict.fromkeys(
        (
            "machine-rank",
            "main-process-ip",
            "same-network",
            "rdzv-backend",
            "rdzv-conf",
            "log-dir",
            "no-python",
            "module",
            "m",
            "multi-gpu",
            "tee",
            "deepspeed-multinode-launcher",
            "deepspeed-hostfile",
            "mpirun-hostfile",
        ),
        "",
    ),
}
TRAINING_KINDS = {"FSDP": "use_fsdp", "DEEPSPEED": "use_deepspeed", "MEGATRON_LM": "use_megatron_lm"}
"""Kinds of training in a configuration file, and the command-line option for each. Any other kind is one process per
rank, which is --multi_gpu, with and without GPUs."""

CPU_ENVIRON = {"ACCELERATE_USE_CPU": "true"}
"""Without this variable each CPU rank uses a world size of 1. The option --cpu would start only one process."""


def accelerate_command(job: Job, where: LaunchContext, worker: Sequence[str], environ: Mapping[str, str]) -> Command:  # noqa: ARG001
    options = (
        f"--num_machines={where.nodes}",
        f"--machine_rank={where.node_rank}",
        f"--num_processes={where.world_size}",
        f"--main_process_ip={where.main_address}",
        f"--main_process_port={where.main_port}",
        "--rdzv_backend=static",
        "--same_network",
        "--max_restarts=0",
        f"--log_dir={where.folder}",
        *_kind_flags(job, where),
        *_default_flags(job, where),
        *option_flags(_user_options(job)),
    )
    argv = (job.python, "-m", "accelerate.commands.launch", *options, "--no_python", *worker)
    return Command(argv=argv, env={} if job.resources.gpus_per_node else CPU_ENVIRON)


def _user_options(job: Job) -> dict[str, str]:
    """Options with underscores, as in accelerate's documentation. accelerate accepts dashes too."""
    return {name.replace("-", "_"): value for name, value in job.launching.options.items()}


def _kind_flags(job: Job, where: LaunchContext) -> tuple[str, ...]:
    given = TRAINING_KINDS.get(training_kind(where.config), "")
    asked = [name for name in TRAINING_KINDS.values() if given == name or name in _user_options(job)]
    if "use_deepspeed" in asked:
        return ("--deepspeed_multinode_launcher=standard",)  # its other launchers start ranks on all nodes by ssh
    return ("--multi_gpu",) if not asked and where.world_size > 1 else ()


def _default_flags(job: Job, where: LaunchContext) -> tuple[str, ...]:
    """Defaults given explicitly: without a configuration file accelerate warns about each option that is not set."""
    if where.config:
        return ()
    defaults = {"mixed_precision": "no", "dynamo_backend": "no"}
    return tuple(option_flags({name: value for name, value in defaults.items() if name not in _user_options(job)}))


def training_kind(config: str) -> str:
    """The kind of training in a configuration file. In YAML and in JSON the key is at the start of a line."""
    found = re.search(r"""^[\s{]*["']?distributed_type["']?\s*:\s*["']?(\w+)""", config, re.MULTILINE)
    return found.group(1) if found else ""


def read_configuration(job: Job, environ: Mapping[str, str]) -> str:
    """Content of accelerate's configuration file; empty if it has none."""
    found = next((path for path in config_files(job, environ) if path.is_file()), None)
    return found.read_text(errors="replace") if found else ""


def config_files(job: Job, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Paths where accelerate searches for its configuration file, in its order."""
    named = _user_options(job).get("config_file")
    if named:
        return (Path(job.cwd) / named,)
    home = Path(environ.get("HOME", "~"))
    caches = Path(environ["XDG_CACHE_HOME"]) if environ.get("XDG_CACHE_HOME") else home / ".cache"
    folder = Path(environ["HF_HOME"]) if environ.get("HF_HOME") else caches / "huggingface"
    return tuple(folder / "accelerate" / f"default_config.{kind}" for kind in ("yaml", "json"))


LAUNCHERS = {"accelerate": Launcher(command=accelerate_command, reserved_options=RESERVED_OPTIONS)}
