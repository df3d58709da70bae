"""The RUN argument of the commands that show one run."""

from __future__ import annotations

from collections.abc import Mapping

import click

from echelon.cli._output import say
from echelon.observe.find import find_run, latest_run
from echelon.run_dir import RunDir

optional_run = click.argument("run", required=False)


def find_run_or_latest(word: str | None, environ: Mapping[str, str]) -> RunDir:
    """Without a word the latest run, whose id is printed to stderr. Raises like `find_run`."""
    if word is not None:
        return find_run(word, environ)
    run_dir = latest_run(environ)
    say(f"latest run: {run_dir.run_id}")
    return run_dir
