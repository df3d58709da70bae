"""Runs the commands of Slurm and PBS on the control side, with deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from echelon.backends.batch import SchedulerFacts
from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.shell import format_command
from echelon.states import JobStatus

ANSWER_SECONDS = 30.0
SUBMIT_SECONDS = 120.0  # a busy controller delays sbatch; after a timeout it is unknown whether the job was accepted
MOST_IDS = 2000  # per query: one argument of a command can have at most 128 KiB


class ToolTimeout(SchedulerUnreachable):
    """The tool did not exit within its deadline. Its request may have reached the scheduler."""


@record
class Answer:
    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """The error output of the tool, or else its output, or else its exit code."""
        return (self.err or self.out).strip() or f"exit code {self.code}, no output"


@record
class Tools:
    """Runs the tools of one scheduler and translates their errors."""

    label: str
    facts: SchedulerFacts
    hints: Mapping[str, str] = field(default_factory=dict)
    """Hints for refused requests, by a part of the tool's message."""

    def run(self, argv: Sequence[str], environ: Mapping[str, str], seconds: float = ANSWER_SECONDS) -> Answer:
        """Runs one tool. Returns its answer for every exit code.

        Raises ToolTimeout, SchedulerUnreachable if the controller does not answer, and SchedulerError if the tool
        cannot run.
        """
        import subprocess  # here, because render must stay fast

        from echelon.system.processes import run_program

        try:
            done = run_program(argv, environ, seconds)
        except subprocess.TimeoutExpired as late:
            raise ToolTimeout(
                f"{argv[0]} has not answered within {seconds:.0f} s",
                why=_decode_output(late.stderr or b"").strip() or None,
                hint=f"check whether {self.label} is up: {format_command(argv)}",
            ) from late
        except OSError as error:
            raise SchedulerError(
                f"cannot run {argv[0]}",
                why=error.strerror,
                hint=f"run this on a login node that has the tools of {self.label}; --on local runs on this machine",
            ) from error
        answer = Answer(argv=tuple(argv), code=done.code, out=done.out, err=done.err)
        if answer.code != 0 and self.facts.is_unreachable(answer.message):
            raise SchedulerUnreachable(
                f"{self.label} does not answer", why=answer.message, hint="try again in a moment"
            )
        return answer

    def refusal_error(self, what: str, answer: Answer) -> SchedulerError:
        hint = next((hint for words, hint in self.hints.items() if words in answer.message), None)
        return SchedulerError(what, origin=format_command(answer.argv), why=answer.message, hint=hint)

    def submit(self, argv: Sequence[str], environ: Mapping[str, str], parse_id: Callable[[str], str]) -> str:
        """Submits a job and returns its id. Raises SchedulerError if the scheduler refuses it."""
        answer = self.run(argv, environ, SUBMIT_SECONDS)
        if answer.code != 0:
            raise self.refusal_error(f"{self.label} refused the job", answer)
        try:
            return parse_id(answer.out)
        except ValueError as error:
            raise SchedulerError(
                f"{argv[0]} printed no valid job id", origin=format_command(argv), why=str(error)
            ) from error


def _decode_output(data: bytes) -> str:
    return data.decode(errors="replace")


def query_runs(
    run_dirs: Sequence[RunDir], query_jobs: Callable[[Sequence[str]], Mapping[str, JobStatus]]
) -> list[JobStatus | None]:
    """The status of each run, from as few queries as possible."""
    ids = [run_dir.read_native_id() for run_dir in run_dirs]
    known: dict[str, JobStatus] = {}
    for some in id_batches(sorted(filter(None, set(ids)))):
        known.update(query_jobs(some))
    return [known.get(one) for one in ids]


def id_batches(ids: Sequence[str], size: int = MOST_IDS) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def query_interval(seconds: float) -> float:
    """1 s during the first 10 s, then a tenth of the time that has passed, between 2 and 30 s."""
    return 1.0 if seconds < 10 else min(30.0, max(2.0, seconds / 10))


NO_CONFIGURATION = "configuration source"
"""Printed by Slurm's tools if they find no slurm.conf in a file or over the network."""
DETECTION_SECONDS = 5.0


def slurm_is_configured(environ: Mapping[str, str]) -> bool:
    """False only if Slurm's tools report a missing configuration. A controller that is down is configured.

    Some login nodes have no scontrol, and the controller may answer it too late. Then sbatch is run: it also reads the
    configuration, and prints its version without the controller.
    """
    code, words = _run_for_detection(("scontrol", "ping"), environ)
    if code is None:
        _, words = _run_for_detection(("sbatch", "--version"), environ)
    return NO_CONFIGURATION not in words


def pbs_answers(environ: Mapping[str, str]) -> bool:
    code, _ = _run_for_detection(("qstat", "-B"), environ)
    return code == 0


def _run_for_detection(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int | None, str]:
    """Exit code and output; None if there was no answer."""
    import subprocess  # here, because render must stay fast

    from echelon.system.machine import find_program

    program = find_program(argv[0], environ)
    if program is None:
        return None, ""
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DETECTION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ""
    return done.returncode, done.stdout + done.stderr
