"""All the I/O with a batch scheduler's own tools: run without a shell, within a deadline, their words passed on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from echelon.batch_facts import Facts
from echelon.command import typed
from echelon.errors import SchedulerError, SchedulerUnreachable
from echelon.run_dir import RunDir
from echelon.states import JobStatus

ANSWER_SECONDS = 30.0
SUBMIT_SECONDS = 120.0  # a busy controller lets sbatch wait; giving up does not tell whether the job was taken
MOST_IDS = 2000  # in one question: a word of a command line has room for 128 KiB


@dataclass(frozen=True, kw_only=True)
class Answer:
    argv: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What the tool had to say for itself."""
        return (self.err or self.out).strip() or f"exit code {self.code}, and not a word"


@dataclass(frozen=True, kw_only=True)
class Tools:
    """How the tools of one scheduler are talked to."""

    label: str
    facts: Facts
    remedies: Mapping[str, str] = field(default_factory=dict)
    """What to try after a refusal, by words that are in it."""

    def ask(self, argv: Sequence[str], environ: Mapping[str, str], seconds: float = ANSWER_SECONDS) -> Answer:
        """What one tool says, whatever its exit code; raises when it could not say anything."""
        import subprocess  # not for render: it must stay quick

        try:
            done = subprocess.run(
                list(argv), env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise SchedulerUnreachable(
                f"{argv[0]} has not answered within {seconds:.0f} s", why=_text(late.stderr or b"").strip() or None,
                hint=f"see whether {self.label} is up: {typed(argv)}",
            ) from late  # fmt: skip
        except OSError as error:
            raise SchedulerError(
                f"cannot run {argv[0]}", why=error.strerror,
                hint=f"this must be done where the tools of {self.label} are; --on local runs on this machine",
            ) from error  # fmt: skip
        answer = Answer(argv=tuple(argv), code=done.returncode, out=_text(done.stdout), err=_text(done.stderr))
        if answer.code != 0 and self.facts.nobody_answers(answer.words):
            raise SchedulerUnreachable(f"{self.label} does not answer", why=answer.words, hint="try again in a moment")
        return answer

    def refusal(self, what: str, answer: Answer) -> SchedulerError:
        hint = next((hint for words, hint in self.remedies.items() if words in answer.words), None)
        return SchedulerError(what, origin=typed(answer.argv), why=answer.words, hint=hint)

    def submit(self, argv: Sequence[str], environ: Mapping[str, str], parse_id: Callable[[str], str]) -> str:
        """The id of the new job."""
        answer = self.ask(argv, environ, SUBMIT_SECONDS)
        if answer.code != 0:
            raise self.refusal(f"{self.label} refused the job", answer)
        try:
            return parse_id(answer.out)
        except ValueError as error:
            raise SchedulerError(
                f"{argv[0]} named no job that {self.label} could have", origin=typed(argv), why=str(error)
            ) from error


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def query(
    run_dirs: Sequence[RunDir], ask: Callable[[Sequence[str]], Mapping[str, JobStatus]]
) -> list[JobStatus | None]:
    """One question for all of them, or as few as fit."""
    ids = [run.read_native_id() for run in run_dirs]
    known: dict[str, JobStatus] = {}
    for some in chunks(sorted(filter(None, set(ids)))):
        known.update(ask(some))
    return [known.get(one) for one in ids]


def chunks(ids: Sequence[str], size: int = MOST_IDS) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def pause(seconds: float) -> float:
    """Quick while things are new, then ever slower: every tenth of the time that has passed, 2 to 30 s."""
    return 1.0 if seconds < 10 else min(30.0, max(2.0, seconds / 10))
