"""Writes data to stdout and messages to stderr, with colour and tables only on a terminal; finds the RUN to show."""

from __future__ import annotations

import json
import os
import re
import select
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from echelon.untrusted import TerminalLogCleaner, clean_for_terminal

if TYPE_CHECKING:
    from echelon.run_dir import RunDir

MAX_MESSAGE_CHARACTERS = 16_000
"""Maximum length of one message, so that a tool with endless output does not fill the screen."""
LABEL = re.compile(r" *(?P<label>[a-z]+ {2,})?")
"""The indentation of a line with its label, if it has one: `  log     `."""
QUOTED = re.compile(r" *\| ")
WRAP_INDENT = 2
_LOG = TerminalLogCleaner()
optional_run = click.argument("run", required=False)


def say(text: str) -> None:
    print_error(f"echelon: {text}")


def print_error(text: str) -> None:
    """Prints to stderr. If its reader is gone, the text is dropped: a lost message must not make a command fail."""
    try:
        click.echo(clean_for_terminal(text, most=MAX_MESSAGE_CHARACTERS), err=True)
    except BrokenPipeError:
        redirect_to_null(2)


def print_text(text: str) -> None:
    """Prints to stdout. Control characters are removed: the text may contain output of hosts, tools and ranks."""
    click.echo(clean_for_terminal(text, most=MAX_MESSAGE_CHARACTERS))


def print_verdict(text: str, *, err: bool = False, most: int = MAX_MESSAGE_CHARACTERS) -> None:
    """Prints to stdout, or to stderr with `err`. On a terminal long lines are wrapped below their text."""
    stream = sys.stderr if err else sys.stdout
    clean = clean_for_terminal(text, most=most)
    if stream is not None and stream.isatty():
        import shutil  # not needed by most commands

        clean = wrap_lines(clean, shutil.get_terminal_size().columns)
    if err:
        print_error(clean)
    else:
        click.echo(clean)


def wrap_lines(text: str, width: int) -> str:
    """Wraps at blanks only. Left alone: quoted output of ranks, which starts with `|`, and lines with a long path."""
    return "\n".join(_wrap_line(line, width) for line in text.split("\n"))


def _wrap_line(line: str, width: int) -> str:
    head = LABEL.match(line)
    indent = 0 if head is None else len(head[0]) + (0 if head["label"] else WRAP_INDENT)
    longest = max(map(len, line.split()), default=0)
    if len(line) <= width or indent + longest > width or QUOTED.match(line):
        return line
    import textwrap  # not needed by most commands

    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def redirect_to_null(fd: int) -> None:
    """Redirects later output to /dev/null, so that flushing at exit cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, fd)
    os.close(null)


def write_bytes(data: bytes) -> None:
    """Raises BrokenPipeError if the reader of stdout is gone, even if there is nothing to write. On any other error,
    such as a full disk, output is dropped from then on."""
    if sys.stdout is None:
        return
    if _reader_is_gone(1):
        raise BrokenPipeError
    if not data:
        return
    if sys.stdout.isatty():
        data = _LOG.feed(data)
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_to_null(1)
        say(f"warning: cannot write to stdout ({error.strerror}); the run continues, echelon logs shows its output")


def _reader_is_gone(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)  # errors and hang-ups are always reported
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    rows = [
        [" ".join(clean_for_terminal(cell, most=MAX_MESSAGE_CHARACTERS).split("\n")) for cell in row] for row in rows
    ]
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
        is_last = index == len(header) - 1  # only the last column wraps: ids and states stay whole on a narrow terminal
        table.add_column(title, no_wrap=not is_last, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False, emoji=False).print(table)


def format_age(moment: float | None, now: float | None = None) -> str:
    if moment is None:
        return "-"
    seconds = max(0.0, (time.time() if now is None else now) - moment)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def find_run_or_latest(word: str | None, environ: Mapping[str, str]) -> RunDir:
    """Without a word the latest run, whose id is printed to stderr. Raises like `find_run`."""
    from echelon.observe.find import find_run, latest_run  # not needed by most commands

    if word is not None:
        return find_run(word, environ)
    run_dir = latest_run(environ)
    say(f"latest run: {run_dir.run_id}")
    return run_dir
