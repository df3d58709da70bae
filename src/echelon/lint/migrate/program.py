"""The program of the replacing command with its arguments, and what a script runs it through. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from echelon.lint.launches import WRAPPERS, Launch
from echelon.lint.migrate.typed import UnclearError, Words, plain_text
from echelon.lint.model import names
from echelon.lint.values import readable, unknown_names

ENVIRONMENT_RUNNERS = names("uv poetry pipenv rye pixi conda mamba micromamba pdm hatch")
PROCESS_RUNNERS = names(
    "numactl taskset hwloc-bind nsys ncu rocprof perf strace py-spy valgrind catchsegv gdb xvfb-run"
)
"""Programs that run one process. In front of a launcher they run all ranks, which echelon has no counterpart for."""
CONTAINERS = re.compile("singularity|apptainer")
ALL_ARGUMENTS = ("@", "*")
OPTION = re.compile(r"--?[A-Za-z]")
PLAIN_PYTHON_OPTIONS = names("-u -B -s -E -I -m")


def main_launch(own: Sequence[Launch]) -> Launch | None:
    """What the job is about: the launcher of ranks, or else the Python program. Raises UnclearError for several."""
    tiers = (
        [one for one in own if one.is_distributed],
        [one for one in own if one.kind == "python" and one.starter is not None],
        [one for one in own if one.kind == "python"],
    )
    chosen = next((tier for tier in tiers if tier), [])
    if chosen:
        _refuse_several(chosen)
    return chosen[-1] if chosen else None


def _refuse_several(chosen: Sequence[Launch]) -> None:
    """Raises UnclearError for several programs, for a loop, and for a function that gets its arguments elsewhere."""
    targets = list(dict.fromkeys(readable(" ".join(one.target)) for one in chosen))
    line, scope = chosen[-1].command.line, chosen[-1].command.scope
    if len(targets) > 1:
        raise UnclearError(f"line {line}: the script starts {_listed(targets)}; use one run for each")
    if scope.loop or (len(chosen) > 1 and any(one.command.scope.background for one in chosen)):
        use = "use one run, or an index of --array, for each"
        raise UnclearError(f"line {line}: {targets[0]} is started several times; {use}")
    used = unknown_names(" ".join(chosen[-1].words))
    if scope.function is not None and any(re.match(r"[\d@*]", name) for name in used):
        raise UnclearError(f"line {line}: the arguments of the function {scope.function} are not known")


def _listed(texts: Sequence[str]) -> str:
    return f"{', '.join(texts[:-1])} and {texts[-1]}"


def wrapper_words(launch: Launch) -> list[str]:
    """The words in front of the launcher that matter: not `time`, `exec` or variables."""
    words = list(launch.before)
    while words and (words[0].rpartition("/")[2] in WRAPPERS or re.match(r"-|\d+$|\w+=", words[0])):
        words.pop(0)
    return words


def variables_before(launch: Launch) -> Iterator[tuple[str, str]]:
    """The variables of `env NAME=VALUE python train.py`."""
    for word in launch.before:
        found = re.match(r"(\w+)=(.*)", word, re.DOTALL)
        if found is not None:
            yield found[1], found[2]


def program_words(words: Words, launch: Launch) -> list[str]:
    """The script, or `--` and a command, with its arguments. Raises UnclearError."""
    wrapper = wrapper_words(launch)
    program = wrapper[0].rpartition("/")[2] if wrapper else ""
    if program == "timeout":
        words.leave_out(f"{' '.join(wrapper)}: use --time", launch.command.line)
        wrapper, program = [], ""
    if not wrapper or CONTAINERS.search(program):
        _add_python(words, launch, is_host=not wrapper)
        return _plain(words, launch)
    if program in ENVIRONMENT_RUNNERS and not {"--launcher", "--image"} & set(words.words):
        return _through(words, launch, wrapper)
    if program in PROCESS_RUNNERS and launch.kind == "python":
        return _through(words, launch, wrapper)
    if program in PROCESS_RUNNERS:
        words.leave_out(f"{shown(wrapper)}: it runs the launcher, which echelon replaces", launch.command.line)
        return _plain(words, launch)
    raise UnclearError(
        f"line {launch.command.line}: {shown(wrapper)} starts the program, and what it sets up is not known"
    )


def shown(words: Sequence[str]) -> str:
    return plain_text(" ".join(words[:3])) + (" ..." if len(words) > 3 else "")


def _add_python(words: Words, launch: Launch, *, is_host: bool) -> None:
    """The interpreter, if the script names its folder."""
    folder, slash, name = launch.words[0].rpartition("/")
    if slash and is_host:
        python = f"{folder}/{name if launch.kind == 'python' or name.startswith('python') else 'python'}"
        words.words += ["--python", _certain(words, launch, python, "the path of Python")]
    target = launch.target[0] if launch.target else ""
    given = [word for word in launch.words[1 : launch.words.index(target)] if word.startswith("-")] if target else []
    if launch.kind == "python" and not set(given) <= PLAIN_PYTHON_OPTIONS:
        words.leave_out(f"the options of Python {' '.join(given)}", launch.command.line)


def _plain(words: Words, launch: Launch) -> list[str]:
    target = [_certain(words, launch, word, "the program") for word in launch.target]
    is_command = launch.option("no-python") is not None
    if not target or (len(target) == 1 and launch.target[0].startswith("-")):
        raise UnclearError(
            f"line {launch.command.line}: {shown(launch.words)} does not show which Python script it runs"
        )
    if not is_command and len(target) == 1 and not re.search(r"\.py[\"']?$", target[0]):
        raise UnclearError(
            f"line {launch.command.line}: {readable(launch.target[0])} is not the name of a Python script"
        )
    return [*(["--"] if is_command else []), *target, *_arguments(words, launch)]


def _through(words: Words, launch: Launch, wrapper: list[str]) -> list[str]:
    """`uv run python train.py` as it is, for each rank. A launcher in it is replaced by Python."""
    python = launch.words[: len(launch.words) - len(launch.arguments)] if launch.kind == "python" else None
    program = [*wrapper, *(python or ("python", *launch.target))]
    return ["--", *(_certain(words, launch, word, "a word") for word in program), *_arguments(words, launch)]


def _certain(words: Words, launch: Launch, text: str, what: str) -> str:
    typed = words.typed(text)
    if typed is None:
        raise UnclearError(f"line {launch.command.line}: {what}, {plain_text(text)}, is known only in the job")
    return typed


def _arguments(words: Words, launch: Launch) -> list[str]:
    """An option whose value is not known is left out together with it. UnclearError for one without an option."""
    typed: list[str] = []
    is_left_out = False
    """Whether the word before was the value of an option that is left out."""
    for argument in launch.arguments:
        word = words.typed(argument)
        if word is None:
            is_left_out = _leave_out(words, launch, argument, [] if is_left_out else typed)
            continue
        if is_left_out and not OPTION.match(argument):
            raise _unclear_argument(launch, argument, "follows a value that is known only in the job")
        typed.append(word)
        is_left_out = False
    return typed


def _leave_out(words: Words, launch: Launch, argument: str, typed: list[str]) -> bool:
    """Notes an argument, with the option before it, which is removed. Returns whether there was one."""
    line, reason = launch.command.line, "its value is known only in the job"
    if readable(argument).strip('${}[]"') in ALL_ARGUMENTS:
        words.leave_out("the arguments of the script ($@): type them at the end", line)
        return False
    if OPTION.match(argument) or re.match(r"[\w.+~@/-]+=", argument):
        words.leave_out(f"the argument {plain_text(argument)}: {reason}", line)
        return False
    if not typed or not re.fullmatch(r"--?[A-Za-z][\w.-]*", typed[-1]):
        raise _unclear_argument(launch, argument, "is known only in the job")
    words.leave_out(f"the argument {typed.pop()} {plain_text(argument)}: {reason}", line)
    return True


def _unclear_argument(launch: Launch, argument: str, reason: str) -> UnclearError:
    return UnclearError(f"line {launch.command.line}: the argument {plain_text(argument)} {reason}")
