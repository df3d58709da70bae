"""`echelon export`: writes a checkpoint to one file for torch.load or safetensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from echelon.cli._options import debug_option
from echelon.cli._output import say
from echelon.environments.node_script import wrap_command
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.events import read_events
from echelon.observe.checkpoints import CheckpointSource, find_checkpoint_source, newest_intact_checkpoint
from echelon.observe.status import apply_events

EXPORTER = "echelon.train.checkpoint.export"
FILE_SUFFIXES = (".pt", ".pth", ".safetensors")


@click.command(help="Write the model of a run's newest intact checkpoint to FILE: .pt for torch.load, or .safetensors.")
@click.argument("run")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--step", type=int, help="Step to export. [default: the newest intact checkpoint]")
@click.option("--all", "everything", is_flag=True, help="Export everything, optimizer included, not only the model.")
@debug_option
def command(run: str, file: Path, step: int | None, everything: bool) -> int:
    if file.suffix not in FILE_SUFFIXES:
        raise ConfigError(
            f"cannot export to {file}",
            origin="command line",
            why=f"unknown ending {file.suffix!r}" if file.suffix else "the file name has no ending",
            hint=f"{file.stem}.pt or {file.stem}.safetensors",
        )
    source = find_checkpoint_source(run, os.environ)
    checkpoint, problems = newest_intact_checkpoint(source, step)
    for problem in problems:
        say(f"skipped a damaged checkpoint: {problem}")
    flags = ["--all"] if everything else []
    code = _run_exporter([str(checkpoint), str(file.absolute()), *flags], source)
    if code == 0:
        say(f"wrote {checkpoint.name} to {file}")
        _warn_unsaved_steps(source, step)
    return code


def _warn_unsaved_steps(source: CheckpointSource, wanted: int | None) -> None:
    """Warns if training went further than the newest checkpoint."""
    fields = apply_events(list(read_events(source.run.events))) if source.run is not None and wanted is None else {}
    trained, saved = fields.get("step"), fields.get("saved")
    if trained is not None and saved is not None and saved < trained:
        say(f"warning: training reached step {trained}; the newest saved step is {saved}")


def _run_exporter(arguments: list[str], source: CheckpointSource) -> int:
    """Runs the exporter in the Python and environment of the job: this Python may lack torch and never imports it."""
    argv, package = [sys.executable, "-m", EXPORTER, *arguments], str(Path(__file__).parents[2])
    if source.run is not None:
        job = source.run.read_job()
        own = [job.python, *argv[1:]]
        argv = wrap_command(job, source.run.path, own) if job.environment != "pyxis" else argv  # only srun can enter it
        package = str(source.run.node_side)
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    try:
        return subprocess.run(argv, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
    except OSError as error:
        raise EnvironmentProblem(f"cannot run {argv[0]}", origin="the job's Python", why=error.strerror) from error
