"""A rank that is a new Python interpreter or another program."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from echelon.agent import worker_server
from echelon.agent.notices import shield_usr1_handlers
from echelon.agent.run_script import run_as_main
from echelon.errors import CANNOT_EXECUTE, NOT_FOUND
from echelon.job import Job, Script, ScriptKind
from echelon.wire.fds import RunLauncher
from echelon.wire.node_dir import NodeDir

AGENT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""A scheduler sends these signals to every process of a job. The starter ignores them because the agent handles them.
Ranks have the default handlers."""
BLOCKED_SIGNALS = (*AGENT_SIGNALS, signal.SIGUSR2, signal.SIGHUP)
"""A launcher blocks these signals. The workers between the launcher and the ranks ignore them."""


def connect_output(output: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(output)


def restore_signals() -> None:
    """Restores the default handlers and unblocks the signals, independent of the parent process. The SIGHUP handler
    does not change: it is inherited from the process that started the run."""
    for signum in (*AGENT_SIGNALS, signal.SIGUSR2):
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED_SIGNALS)


def rank_argv(job: Job, rank: int, node_dir: NodeDir) -> tuple[str, ...]:
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


def cold_rank_main(node_path: Path, rank: int, words: list[str]) -> None:
    """Main function of a cold rank: runs the script in a new interpreter as a forked rank would."""
    kind = ScriptKind.MODULE if words[0] == "-m" else ScriptKind.FILE
    target, *args = words[1:] if kind is ScriptKind.MODULE else words
    node_dir = NodeDir(node_path)
    shield_usr1_handlers(node_dir.ignores_term(rank), os.environ)
    worker_server.start_after_import(node_dir.worker_server(rank))
    script = Script(kind=kind, target=target, args=tuple(args))
    run_as_main(script, node_dir.error(rank), node_dir.stacks(rank), node_dir.fatal(rank))


def execute(words: tuple[str, ...]) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores SIGPIPE; the program must not inherit that
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"cannot run {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE)


def run_launcher(order: RunLauncher) -> None:
    """Blocks the signals that a scheduler sends to every process of a job; the agent handles them.

    SIGUSR1 would kill torchrun but not its ranks. On SIGTERM torchrun would end ranks that handle SIGTERM themselves.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED_SIGNALS)
    for name in order.removed:
        os.environ.pop(name, None)
    os.environ.update(order.env)
    execute(order.argv)
