"""stdout is data, stderr is talk; colour and tables only when a person looks."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click


def say(text: str) -> None:
    click.echo(f"echelon: {text}", err=True)


def write_bytes(data: bytes) -> None:
    """Where stdout can take no more (`| head`, a full disk, closed), the run is followed to its end all the same."""
    if not data or sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            say(f"warning: stdout takes no more output ({error.strerror}); the run goes on, echelon logs has it all")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        _print_rich(header, rows)
        return
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    for row in (header, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, title in enumerate(header):
        table.add_column(title, no_wrap=index < 2, overflow="fold" if index else "ellipsis")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def age(moment: float | None, now: float | None = None) -> str:
    if moment is None:
        return "-"
    seconds = max(0.0, (time.time() if now is None else now) - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
