"""Log files as they grow, in whole lines."""

from __future__ import annotations

from pathlib import Path

from echelon.run_dir import AttemptDir, RunDir


class Tail:
    """Reads what a file has gained since the last look; a line that is not finished yet is left for later."""

    def __init__(self, path: Path, position: int = 0) -> None:
        self.path = path
        self._position = position

    def read(self, *, to_the_end: bool = False) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return b""
        if not to_the_end:
            data = data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1]  # progress bars end in returns
        self._position += len(data)
        return data


class LogTails:
    """All node logs of all attempts, new ones included as they appear."""

    def __init__(self, run_dir: RunDir, first_attempt: int = 0) -> None:
        self._run_dir = run_dir
        self._first = first_attempt
        self._tails: dict[Path, Tail] = {}

    def read(self, *, to_the_end: bool = False) -> bytes:
        for attempt in self._run_dir.attempts():
            if attempt.number >= self._first:
                for path in attempt.node_logs():
                    self._tails.setdefault(path, Tail(path))
        return b"".join(tail.read(to_the_end=to_the_end) for tail in self._tails.values())


def chosen_logs(attempts: list[AttemptDir], *, rank: int | None, node: str | None) -> list[Path]:
    """The files that answer `logs` with these options, in order."""
    if rank is not None:
        paths = [attempt.rank_log(rank) for attempt in attempts]
    elif node is not None:
        paths = [attempt.node_log(node) for attempt in attempts]
    else:
        paths = [path for attempt in attempts for path in attempt.node_logs()]
    return [path for path in paths if path.exists()]
