"""`echelon export`: one checkpoint as one ordinary file, for use elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from echelon.cli.options import debug_option
from echelon.cli.output import say
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.node.inside import inside
from echelon.observe.checkpoints import Source, chosen, find_source

EXPORTER = "echelon.runtime.checkpoint.export"
ENDINGS = (".pt", ".pth", ".safetensors")


@click.command(help="Write the model of a run's newest whole checkpoint to FILE: .pt for torch.load, or .safetensors.")
@click.argument("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--step", type=int, help="Of this step. [default: the newest that is whole]")
@click.option("--all", "everything", is_flag=True, help="Optimizer and all, not only the model.")
@debug_option
def command(run: str, file: Path, step: int | None, everything: bool) -> int:
    if file.suffix not in ENDINGS:
        raise ConfigError(f"{file} ends in {file.suffix or 'nothing'}", hint=f"known are {', '.join(ENDINGS)}")
    source = find_source(run, os.environ)
    checkpoint, problems = chosen(source, step)
    for problem in problems:
        say(f"left out: {problem}")
    flags = ["--all"] if everything else []
    code = _export([str(checkpoint), str(file.absolute()), *flags], source)
    if code == 0:
        say(f"{checkpoint.name} is in {file}")
    return code


def _export(arguments: list[str], source: Source) -> int:
    """In the job's own Python and environment: this one need not have torch, and never imports it."""
    argv, package = [sys.executable, "-m", EXPORTER, *arguments], str(Path(__file__).parents[2])
    if source.run is not None:
        job = source.run.read_job()
        own = [job.python, *argv[1:]]
        argv = inside(job, source.run.path, own) if job.environment != "pyxis" else argv  # which is srun's alone
        package = str(source.run.node_side)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    try:
        return subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
    except OSError as error:
        raise EnvironmentProblem(f"cannot run {argv[0]}", origin="the job's Python", why=error.strerror) from error
