"""Delivers the notice to ranks: a flag file for the library, SIGUSR1 for ranks with a handler."""

from __future__ import annotations

import functools
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from echelon.backends import job_id_variables
from echelon.wire.node_dir import NodeDir

if TYPE_CHECKING:
    from echelon.agent.ranks import RankSet
    from echelon.wire.messages import Sample


class NoticeSender:
    def __init__(self, ranks: RankSet, node_dir: NodeDir) -> None:
        self._ranks = ranks
        self._node_dir = node_dir
        self._is_sent = False
        self._signalled: set[int] = set()
        """Pids, not ranks, so that ranks of later generations are signalled too."""

    def send(self, seconds_left: float) -> None:
        """Signals ranks with a handler, then writes the flag file. Raises OSError if that file cannot be written."""
        self._is_sent = True
        ranks = self._signal_new_ranks()
        sent = f", SIGUSR1 to rank {', '.join(map(str, ranks))}" if ranks else ""
        self._ranks.log_line(f"notice: {seconds_left:.0f} s left{sent}")
        self._node_dir.notice.write_text(f"{time.time() + seconds_left:.3f}\n")

    def send_to_new_ranks(self) -> None:
        """Signals ranks that started or installed their handler after the notice."""
        ranks = self._signal_new_ranks() if self._is_sent else []
        if ranks:
            self._ranks.log_line(f"notice: SIGUSR1 to rank {', '.join(map(str, ranks))}")

    def _signal_new_ranks(self) -> list[int]:
        ranks = self._ranks.signal_ranks_with_handler(signal.SIGUSR1, skip=self._signalled)
        members = (self._ranks.members[rank] for rank in ranks)
        self._signalled.update(member.pid for member in members if member.pid is not None)
        return ranks

    def mark_samples(self, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        """After a notice, sets `handles_notice` in each sample: whether the rank handles the notice."""
        if not self._is_sent:
            return samples
        return tuple(replace(one, handles_notice=self._handles_notice(one.rank)) for one in samples)

    def _handles_notice(self, rank: int) -> bool:
        return self._ranks.members[rank].pid in self._signalled or self._node_dir.reads_notice(rank).exists()


JOB_ID_VARIABLES = job_id_variables()


def shield_usr1_handlers(mark: Path, environ: Mapping[str, str]) -> None:
    """Makes this process ignore SIGTERM from the moment the script installs a SIGUSR1 handler. Batch jobs only.

    The effect ends when the script installs its own SIGTERM handler. Until then `signal` and `getsignal` return the
    default handler to the script. While SIGTERM is ignored, the file `mark` exists and the agent ends the rank by
    SIGKILL.
    """
    if not any(name in environ for name in JOB_ID_VARIABLES):
        return
    install, look = signal.signal, signal.getsignal

    @functools.wraps(install)
    def install_and_shield(signum: Any, handler: Any) -> Any:
        before = install(signum, handler)
        if signum == signal.SIGTERM and before is _ignore_term:
            mark.unlink(missing_ok=True)
        elif signum == signal.SIGUSR1 and callable(handler) and look(signal.SIGTERM) is signal.SIG_DFL:
            _start_ignoring_term(mark, install)
        return _visible_handler(before)

    @functools.wraps(look)
    def get_visible_handler(signum: Any) -> Any:
        return _visible_handler(look(signum))

    def restore_in_child() -> None:
        if look(signal.SIGTERM) is _ignore_term:
            install(signal.SIGTERM, signal.SIG_DFL)  # SIGTERM must end the child as usual

    module: Any = signal
    module.signal, module.getsignal = install_and_shield, get_visible_handler
    os.register_at_fork(after_in_child=restore_in_child)


def _start_ignoring_term(mark: Path, install: Any) -> None:
    try:
        mark.touch()
    except OSError:
        return  # without the mark the agent would send SIGTERM and wait until the grace ends
    install(signal.SIGTERM, _ignore_term)


def _ignore_term(_signum: int, _frame: FrameType | None) -> None:
    pass


def _visible_handler(handler: Any) -> Any:
    return signal.SIG_DFL if handler is _ignore_term else handler
