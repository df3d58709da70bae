"""A scheduler's own commands as the node side uses them: one question, one answer, and always an end to the waiting."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from echelon.batch_facts import Facts
from echelon.node.hosts import Standing, Unreachable

COMMAND_SECONDS = 60.0


def run(argv: Sequence[str], environ: Mapping[str, str], facts: Facts) -> str:
    """What the command printed; raises Unreachable, and CalledProcessError where the scheduler answered no."""
    try:
        return subprocess.run(
            argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=COMMAND_SECONDS, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(str(error)) from error
    except subprocess.CalledProcessError as error:
        if facts.nobody_answers(error.stderr):
            raise Unreachable(error.stderr.strip()) from error
        raise


class Asked:
    """A question that is under way: `read` makes a Standing of what the command prints."""

    def __init__(
        self, argv: Sequence[str], environ: Mapping[str, str], seconds: float, read: Callable[[str], Standing]
    ) -> None:
        self._read = read
        self._name = argv[0].rpartition("/")[2]
        self._deadline = time.monotonic() + seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  closed with the answer; a pipe could fill up
        try:
            self._process = subprocess.Popen(
                argv, env=dict(environ), stdin=subprocess.DEVNULL, stdout=self._said, stderr=subprocess.DEVNULL
            )
        except OSError:
            pass  # nobody will answer

    def answer(self) -> Standing | None:
        process = self._process
        code = None if process is None else process.poll()
        if process is not None and code is None and time.monotonic() < self._deadline:
            return None
        if process is not None:
            process.kill()
            process.wait()
        self._said.seek(0)
        with self._said as said:
            text = said.read().decode(errors="replace")
        if code != 0:
            raise Unreachable(f"{self._name} did not answer")
        return self._read(text)
