"""`--launcher accelerate`: Hugging Face's own, on each node; its configuration file says the rest, as ever."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from echelon.command import Command
from echelon.job import Job
from echelon.launchers import Where, flags

OURS = {
    **dict.fromkeys(("num-machines",), "--nodes"),
    **dict.fromkeys(("num-processes",), "--gpus-per-node or --procs-per-node"),
    **dict.fromkeys(("max-restarts",), "--restarts"),
    **dict.fromkeys(("main-process-port",), "--ports"),
    **dict.fromkeys(("cpu",), "--cpu"),
    **dict.fromkeys(
        ("machine-rank", "main-process-ip", "same-network", "rdzv-backend", "rdzv-conf", "log-dir", "no-python",
         "module", "m", "multi-gpu", "tee", "deepspeed-multinode-launcher", "deepspeed-hostfile", "mpirun-hostfile"), ""
    ),
}  # fmt: skip
KINDS = {"FSDP": "use_fsdp", "DEEPSPEED": "use_deepspeed", "MEGATRON_LM": "use_megatron_lm"}
"""Kinds of training that a configuration file may choose, and the options that do. Any other kind is one process for
each rank, which --multi_gpu means with and without GPUs."""

ON_CPU = {"ACCELERATE_USE_CPU": "true"}
"""Without it each rank of a script on CPU takes itself for the only one. Its own --cpu would start but one process."""


def command(job: Job, where: Where, worker: Sequence[str], environ: Mapping[str, str]) -> Command:  # noqa: ARG001
    options = (
        f"--num_machines={where.nodes}",
        f"--machine_rank={where.node_rank}",
        f"--num_processes={where.world_size}",
        f"--main_process_ip={where.main_address}",
        f"--main_process_port={where.main_port}",
        *("--rdzv_backend=static", "--same_network", "--max_restarts=0", f"--log_dir={where.folder}"),
        *_kind(job, where),
        *_spoken_for(job, where),
        *flags(_asked(job)),
    )
    argv = (job.python, "-m", "accelerate.commands.launch", *options, "--no_python", *worker)
    return Command(argv=argv, env={} if job.resources.gpus_per_node else ON_CPU)


def _asked(job: Job) -> dict[str, str]:
    """Options as accelerate's own pages spell them; it takes dashes as well."""
    return {name.replace("-", "_"): value for name, value in job.launching.options.items()}


def _kind(job: Job, where: Where) -> tuple[str, ...]:
    given = KINDS.get(kind_of(where.config), "")
    asked = [name for name in KINDS.values() if given == name or name in _asked(job)]
    if "use_deepspeed" in asked:
        return ("--deepspeed_multinode_launcher=standard",)  # the others start ranks on all nodes by ssh
    return ("--multi_gpu",) if not asked and where.world_size > 1 else ()


def _spoken_for(job: Job, where: Where) -> tuple[str, ...]:
    """Without a configuration file it complains of what was left to its defaults."""
    if where.config:
        return ()
    defaults = {"mixed_precision": "no", "dynamo_backend": "no"}
    return tuple(flags({name: value for name, value in defaults.items() if name not in _asked(job)}))


def kind_of(config: str) -> str:
    """The file is YAML or JSON; its kind of training stands in one line of its own in either."""
    found = re.search(r"""^[\s{]*["']?distributed_type["']?\s*:\s*["']?(\w+)""", config, re.MULTILINE)
    return found.group(1) if found else ""


def configuration(job: Job, environ: Mapping[str, str]) -> str:
    """What its configuration file says, if there is one."""
    found = next((path for path in config_files(job, environ) if path.is_file()), None)
    return found.read_text(errors="replace") if found else ""


def config_files(job: Job, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where accelerate looks, in its order."""
    named = _asked(job).get("config_file")
    if named:
        return (Path(job.cwd) / named,)
    home = Path(environ.get("HOME", "~"))
    caches = Path(environ["XDG_CACHE_HOME"]) if environ.get("XDG_CACHE_HOME") else home / ".cache"
    folder = Path(environ["HF_HOME"]) if environ.get("HF_HOME") else caches / "huggingface"
    return tuple(folder / "accelerate" / f"default_config.{kind}" for kind in ("yaml", "json"))
