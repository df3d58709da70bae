"""Rules about --signal, traps and requeueing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from echelon.lint.directives import Option
from echelon.lint.launches import Launch
from echelon.lint.model import Hit, Rule, Severity
from echelon.lint.rules._common import HEAD, SRUN, first_line, requeues_itself, runs_program
from echelon.lint.script import JobScript
from echelon.lint.syntax import Command
from echelon.record import record

SIGNAL = re.compile(r"(?P<flags>[RB]{1,2}:)?(?:SIG)?(?P<name>\w+)(?:@\d+)?")
NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM", "2": "INT", "1": "HUP", "18": "CONT", "14": "ALRM"}
FORWARDS = re.compile(r"\b(kill|pkill|scancel|touch|killall)\b|>")
WAIT = 'pid=$!\nwhile kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done\nexit "$code"'
REQUEUES = re.compile(r"\bscontrol\s+requeue\b|\bsbatch\b")


@record
class Trap:
    signals: frozenset[str]
    command: Command
    index: int
    body: str | None
    """The source of the handler; None if it is not in this script."""


def find_traps(script: JobScript) -> list[Trap]:
    found = []
    for index, command, words in script.commands:
        if command.name == "trap" and len(words) > 2:
            signals = frozenset(signal_name(word) for word in words[2:])
            found.append(Trap(signals=signals, command=command, index=index, body=_handler(script, words[1])))
    return found


def signal_name(text: str) -> str:
    upper = text.upper().removeprefix("SIG")
    return NUMBERS.get(upper, upper)


def _handler(script: JobScript, action: str) -> str | None:
    """The text of the handler with the functions that it calls."""
    if action in ("", "-"):
        return None
    names = [word for word in re.findall(r"[\w-]+", action) if word in script.shell.functions]
    bodies = [_function_source(script, name) for name in names]
    return "\n".join((action, *bodies)) if names or " " in action else None


def _function_source(script: JobScript, name: str) -> str:
    lines = [one.line for one in script.shell.statements if one.scope.function == name]
    last = max(
        (
            one.end if isinstance(one, Command) else one.line
            for one in script.shell.statements
            if one.scope.function == name
        ),
        default=0,
    )
    return "\n".join(script.line(number) for number in range(min(lines, default=1), last + 1))


def warning_signal(script: JobScript) -> tuple[Option, str, bool] | None:
    """The directive --signal, the name of the signal, and whether it goes to the batch shell."""
    option = script.request.option("signal")
    found = SIGNAL.fullmatch(option.value) if option is not None else None
    if option is None or found is None:
        return None
    return option, signal_name(found["name"]), "B" in (found["flags"] or "")


def find_missing_traps(script: JobScript) -> Iterator[Hit]:
    given = warning_signal(script)
    if given is None or not given[2] or not script.shell.statements:
        return
    option, name, _ = given
    has_exec = any(one.name == "exec" and len(one.words) > 1 for _, one, _ in script.commands)
    sources = any(one.name in ("source", ".") for _, one, _ in script.commands)
    if not has_exec and not sources and not any(name in trap.signals for trap in find_traps(script)):
        yield Hit(
            line=option.line,
            sentence=f"{name} goes to the batch shell (B:), which has no trap for it and ends",
            fix=f"trap handler {name}",
        )


def find_missed_shell(script: JobScript) -> Iterator[Hit]:
    given = warning_signal(script)
    if given is None or given[2]:
        return
    option, name, _ = given
    for trap in find_traps(script):
        if name in trap.signals and trap.body is not None and name not in ("TERM", "INT", "EXIT"):
            yield Hit(
                line=option.line,
                sentence=f"without B: Slurm sends {name} to the job steps, not to the shell that traps it",
                fix=f"#SBATCH --signal=B:{option.value.rpartition(':')[2]}",
            )
            return


def find_foreground_children(script: JobScript) -> Iterator[Hit]:
    given = warning_signal(script)
    if given is None or not given[2]:
        return
    for trap in find_traps(script):
        later = [one for one in script.launches if one.index > trap.index and runs_program(one)]
        if given[1] not in trap.signals or not later or any(_can_wait(one) for one in later):
            continue
        if any(one.name == "wait" for _, one, _ in script.commands):
            continue
        yield Hit(
            line=later[-1].command.line,
            sentence=f"bash runs the trap for {given[1]} only after this command has ended",
            fix=f"{first_line(script, later[-1])} &\n{WAIT}",
        )
        return


def _can_wait(launch: Launch) -> bool:
    """In the background, or in a function, whose call may be."""
    return launch.command.scope.background or launch.command.scope.function is not None


def find_single_waits(script: JobScript) -> Iterator[Hit]:
    """The trap interrupts `wait`, which returns while the training still runs."""
    given = warning_signal(script)
    waits = [one for _, one, _ in script.commands if one.name == "wait"]
    if given is None or not given[2] or len(waits) != 1 or waits[0].scope.loop or waits[0].scope.function:
        return
    for trap in find_traps(script):
        if given[1] not in trap.signals or trap.body is None:
            continue
        passes_on = re.search(r"\b(kill|pkill|killall|scancel)\b", trap.body)
        if passes_on and not re.search(r"\b(wait|exit)\b", trap.body) and not REQUEUES.search(trap.body):
            yield Hit(
                line=waits[0].line,
                sentence=f"`wait` returns as soon as {given[1]} arrives, while the training still runs",
                fix=WAIT,
            )
            return


def find_silent_handlers(script: JobScript) -> Iterator[Hit]:
    given = warning_signal(script)
    if given is None or not given[2] or not _has_ranks(script):
        return
    for trap in find_traps(script):
        body = trap.body
        if given[1] in trap.signals and body and REQUEUES.search(body) and not FORWARDS.search(_without_quotes(body)):
            yield Hit(
                line=given[0].line,
                sentence=f"{given[1]} reaches only bash, and the trap does not pass it on to the ranks",
                fix=f'# in the handler, before the requeue\nscancel --signal={given[1]} "$SLURM_JOB_ID"',
            )
            return


def _has_ranks(script: JobScript) -> bool:
    """Whether there are ranks that could save: not for a service that submits itself again."""
    return any(one.kind != "other" and runs_program(one) for one in script.launches)


def _without_quotes(text: str) -> str:
    return re.sub(r"\"[^\"]*\"|'[^']*'|2?>&\d|2?>\s*/dev/null", "", text)


def find_overwritten_logs(script: JobScript) -> Iterator[Hit]:
    requeue = script.request.option("requeue")
    by_hand = next((one for _, one, words in script.commands if requeues_itself(words)), None)
    mode = script.request.option("open-mode")
    if not script.is_whole or (requeue is None and by_hand is None) or mode is not None:
        return
    output = script.request.option("output")
    line = (
        output.line if output is not None else requeue.line if requeue is not None else by_hand.line if by_hand else 1
    )
    yield Hit(
        line=line,
        sentence="a requeued job overwrites its log, because its job id stays the same",
        fix="#SBATCH --open-mode=append",
    )


def find_endless_requeues(script: JobScript) -> Iterator[Hit]:
    if not _has_ranks(script):
        return
    if script.mentions(r"SLURM_RESTART_COUNT|SLURM_JOB_RESTART|Restarts=|(?i:max_?(requeue|restart)|requeue_?count)"):
        return
    for _, command, words in script.commands:
        runs_always = command.scope.function is not None or not command.scope.conditional
        if not requeues_itself(words) or command.scope.loop or not runs_always:
            continue
        if not _is_behind_condition(script, command):
            yield Hit(
                line=command.line,
                sentence="the job is requeued without a limit",
                fix=f'[ "${{SLURM_RESTART_COUNT:-0}}" -lt 10 ] && {script.line(command.line)}',
            )
            return


def _is_behind_condition(script: JobScript, command: Command) -> bool:
    """Whether an `if`, a `case` or && decides about it inside of its function."""
    before = script.lines[: command.line - script.source.first_line]
    start = next((i for i in range(len(before) - 1, -1, -1) if re.search(r"\(\)|\bfunction\b", before[i])), 0)
    inner = " ".join(before[start:])
    opened = len(re.findall(r"\bif\b|\bcase\b", inner)) - len(re.findall(r"\bfi\b|\besac\b", inner))
    return opened > 0 or re.search(r"&&|\|\|", script.line(command.line)) is not None


HANDLER = 'save_and_requeue() {{\n  {0}\n  scontrol requeue "$SLURM_JOB_ID"\n}}\ntrap save_and_requeue USR1\n'
LIMIT = '[ "${SLURM_RESTART_COUNT:-0}" -lt 10 ] || exit 1'
SIGNALLED = f"{HEAD}#SBATCH --signal=B:USR1@300\n#SBATCH --open-mode=append\n"
LOOP = f"{WAIT}\n"
FORWARD = 'scancel --signal=USR1 "$SLURM_JOB_ID"'
GOOD = f"{SIGNALLED}save() {{ {FORWARD}; }}\ntrap save USR1\n{SRUN} python train.py &\n{LOOP}"
REQUEUED = HANDLER.format(f"{FORWARD}\n  {LIMIT}")
RULES = (
    Rule(
        id="signal-without-trap",
        severity=Severity.ERROR,
        check=find_missing_traps,
        reason="--signal=B: sends the signal to the batch shell, and a signal without a trap ends it.",
        practice="The job ends minutes before its time limit, and nothing is saved.",
        bad=f"{SIGNALLED}{SRUN} python train.py\n",
        good=GOOD,
    ),
    Rule(
        id="signal-misses-batch-shell",
        severity=Severity.ERROR,
        check=find_missed_shell,
        reason="Without B: the signal goes to the job steps only.",
        practice="The trap never runs, so the job is not requeued. Ranks without a handler die of the signal.",
        bad=f"{SIGNALLED.replace('B:', '')}{REQUEUED}{SRUN} python train.py &\n{LOOP}",
        good=f"{SIGNALLED}{REQUEUED}{SRUN} python train.py &\n{LOOP}",
    ),
    Rule(
        id="trap-foreground-child",
        severity=Severity.ERROR,
        check=find_foreground_children,
        reason="bash runs a trap only between two commands, and the training is one command.",
        practice="The handler runs after the training has ended, or never: the time limit ends the job first.",
        bad=f"{SIGNALLED}save() {{ {FORWARD}; }}\ntrap save USR1\n{SRUN} python train.py\n",
        good=GOOD,
    ),
    Rule(
        id="single-wait-after-trap",
        severity=Severity.ERROR,
        check=find_single_waits,
        reason="A trap interrupts `wait`, which then returns at once.",
        practice="The script ends after the signal, and Slurm kills the ranks while they save.",
        bad=f'{SIGNALLED}save() {{ {FORWARD}; }}\ntrap save USR1\n{SRUN} python train.py &\nwait "$!"\n',
        good=GOOD,
    ),
    Rule(
        id="signal-reaches-only-bash",
        severity=Severity.WARNING,
        check=find_silent_handlers,
        reason="With B: the signal goes to the batch shell only, and the trap does not pass it on.",
        practice="The ranks do not save before the job is requeued, so the steps since the last checkpoint are lost.",
        bad=f"{SIGNALLED}{HANDLER.format(LIMIT)}{SRUN} python train.py &\n{LOOP}",
        good=f"{SIGNALLED}{REQUEUED}{SRUN} python train.py &\n{LOOP}",
    ),
    Rule(
        id="requeue-overwrites-log",
        severity=Severity.WARNING,
        check=find_overwritten_logs,
        reason="A requeued job keeps its id, and Slurm truncates its log when it starts again.",
        practice="The output of the first attempt, with the reason for the requeue, is gone.",
        bad=f"{HEAD}#SBATCH --requeue\n#SBATCH --output=%x-%j.out\n{SRUN} python train.py\n",
        good=f"{HEAD}#SBATCH --requeue\n#SBATCH --output=%x-%j.out\n#SBATCH --open-mode=append\n"
        f"{SRUN} python train.py\n",
    ),
    Rule(
        id="requeue-without-limit",
        severity=Severity.WARNING,
        check=find_endless_requeues,
        reason="The number of requeues has no limit.",
        practice="A job that makes no progress is requeued without end and uses up the project's hours.",
        bad=f"{SIGNALLED}{HANDLER.format(FORWARD)}{SRUN} python train.py &\n{LOOP}",
        good=f"{SIGNALLED}{REQUEUED}{SRUN} python train.py &\n{LOOP}",
    ),
)
