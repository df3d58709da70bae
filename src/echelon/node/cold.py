"""A rank as an interpreter, or a program, of its own: how its process is made ready, and what it executes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from echelon.exit_codes import CANNOT_EXECUTE, NOT_FOUND
from echelon.job import Job, Script, ScriptKind
from echelon.node.as_main import run_as_main
from echelon.node.node_dir import NodeDir

FOR_THE_AGENT = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""What a scheduler sends to every process of a job is the agent's to answer; ranks get them as a script would."""
SHIELDED = (*FOR_THE_AGENT, signal.SIGUSR2, signal.SIGHUP)
"""What a launcher, and the workers between it and the ranks, must not hear of."""


def connect_output(output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)


def hear_signals() -> None:
    """As a script of its own would, whatever the process was made from; a hangup stays as it was around the run."""
    for signum in (*FOR_THE_AGENT, signal.SIGUSR2):
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SHIELDED)


def argv(job: Job, rank: int, node_dir: NodeDir) -> tuple[str, ...]:
    if job.script.kind is ScriptKind.COMMAND:
        return (job.script.target, *job.script.args)
    flag = ("-m",) if job.script.kind is ScriptKind.MODULE else ()
    node_side = sys.argv[0]
    return (
        job.python,
        node_side,
        "rank",
        str(node_dir.path),
        str(rank),
        *flag,
        job.script.target,
        *job.script.args,
    )


def rank_main(node_path: Path, rank: int, words: list[str]) -> None:
    """A cold rank: a new interpreter that does what a forked one does."""
    kind = ScriptKind.MODULE if words[0] == "-m" else ScriptKind.FILE
    target, *args = words[1:] if kind is ScriptKind.MODULE else words
    node_dir = NodeDir(node_path)
    run_as_main(Script(kind=kind, target=target, args=tuple(args)), node_dir.error(rank), node_dir.stacks(rank))


def execute(words: tuple[str, ...]) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; a program must not inherit that
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"cannot run {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)
