"""node.sh enters the environment of a job on a node and runs a command in it: its text, its call, and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.environments import SHELL, Entry, environment_entry, refuse_command
from echelon.environments.activate import module_lines
from echelon.errors import NOT_ENTERED
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.shell import Command, quote_words, shell_array, shell_variable

if TYPE_CHECKING:
    from echelon.wire.reports import FatalNodeProblem

INSIDE_FLAG = "--inside"
"""Argument of node.sh when it runs for the second time, in the container."""
CHECK_PYTHON_VERSION = 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(9 * (sys.version_info < (3, 10)))'
MOST_LINES, MOST_BYTES = 8, 2000
SIGNALS = range(129, 193)  # exit codes of a shell for a command that a signal ended; apptainer's own errors are 255
PYXIS_PREFIX = "pyxis: "
NO_SHELL = f"execve(): {SHELL}: No such file or directory"
STATISTICS = re.compile(r"(^|pyxis: +)(created \d+ |Parallel unsquashfs: |\d+ inodes \(|\[INFO\] |$)")
"""Lines that enroot prints after an error and that do not explain it; pyxis passes them on."""
ERROR, HINT = "error: ", "  try   "


def node_script(job: Job) -> str:
    """The text of `node.sh ERROR_FILE COMMAND...`.

    It loads the modules, runs the lines of `--setup`, enters the environment and runs COMMAND. ERROR_FILE gets the
    reason if one of these steps fails.
    """
    entry = environment_entry(job)
    head = (f"#!{SHELL}", f"# {job.name}: enters the environment on a node, then runs the given command")
    return "\n".join((*head, *_helper_functions(), *_body_lines(job, entry))) + "\n"


def _helper_functions() -> Iterator[str]:
    yield from (
        "error_file=$1 # the file that gets the reason if this node cannot start",
        "shift",
        "run_logged() { # runs a command and keeps its stderr for the verdict",
        '  "$@" 2>"$error_file"',
        "  set -- $?",
        '  cat "$error_file" >&2',
        '  return "$1"',
        "}",
        "refuse() { # prints what is wrong and what to type next, and exits",
        '  printf \'error: %s\\n  try   %s\\n\' "$1" "$2" >>"$error_file"',
        '  printf \'error: %s\\n  try   %s\\n\' "$1" "$2" >&2',
        "  trap - EXIT",
        f"  exit {NOT_ENTERED}",
        "}",
    )


def _body_lines(job: Job, entry: Entry) -> Iterator[str]:
    if entry.wrapper:
        yield from _container_part(job, entry)
    yield ""
    yield ': >"$error_file"'
    yield from module_lines(job.enclosure.modules)
    yield from _setup_lines(job.enclosure.setup)
    yield from entry.lines
    if entry.wrapper:
        second_run = ("/bin/sh", shell_variable("0"), shell_variable("error_file"), INSIDE_FLAG, shell_array())
        yield from Command(argv=(*entry.wrapper, *second_run)).shell_lines(replace_shell=True)
    else:
        yield ""
        yield from python_check_lines(job.python, entry)
        yield from _folder_check_lines(job, entry) if entry.is_inside else ()
        yield from _exec_lines()


def _container_part(job: Job, entry: Entry) -> Iterator[str]:
    """The part that runs in the container. Its /bin/sh need not be bash and executes no line after this part."""
    yield ""
    yield f'if [ "$1" = {INSIDE_FLAG} ]; then # this is the second run, in the container'
    yield "  shift"
    yield from (
        f"  {line}"
        for line in (*python_check_lines(job.python, entry), *_folder_check_lines(job, entry), *_exec_lines())
    )
    yield "fi"


def _setup_lines(lines: tuple[str, ...]) -> Iterator[str]:
    if lines:
        hint = "job.out in the run's folder has its output"
        yield from ("", "# The lines of --setup, unchanged", "setup_ended() {")
        ended = f"the setup ended before the command began, with exit code {shell_variable('1')}"
        yield f"  {refuse_command(ended, hint)}"
        yield from ("}", "trap 'setup_ended $?' EXIT", *lines, "trap - EXIT")


def python_check_lines(python: str, entry: Entry) -> Iterator[str]:
    """Check that `python` exists and can run echelon.pyz. Uses POSIX shell only."""
    ask = (python, "-ISc", CHECK_PYTHON_VERSION)
    hint = f"--python PATH names another one; Python 3.10 and torch are needed{' in the image' * entry.is_image}"
    old = refuse_command(f"{python} in {entry.place} is Python {shell_variable('version')}, and 3.10 is needed", hint)
    yield f"version=$({Command(argv=ask).shell_lines()[0]} 2>&1)"
    yield "case $? in"
    yield "  0) ;;"
    yield f"  9) {old} ;;"
    missing = refuse_command(f"cannot run {python} in {entry.place}", hint)
    yield f'  *) echo "$version" >>"$error_file" && {missing} ;;'
    yield "esac"


def _folder_check_lines(job: Job, entry: Entry) -> Iterator[str]:
    """Check that the working directory exists. Over ssh it is not needed, so it is not checked."""
    folder = job.inner_cwd
    hint = f"--mount {folder}:{folder}, or --container-workdir DIR"
    missing = refuse_command(f"{entry.place} has no folder {folder}", hint)
    yield f'[ -n "${{ECHELON_FOLDER-}}" ] || [ -d {quote_words(folder)} ] || {missing}'


def _exec_lines() -> Iterator[str]:
    yield 'rm -f "$error_file"'
    yield Command(argv=(shell_array(),)).shell_lines(replace_shell=True)[0]


# The command that runs node.sh, and the reason why a node could not enter the environment


def wrap_command(job: Job, run_path: Path, argv: Sequence[str], words: Path | None = None) -> list[str]:
    """The command that runs `argv` in the job's environment. The file `words` gets the reason of a failure.

    It starts with a shell because the run directory may be mounted noexec.
    """
    if not job.is_enclosed:
        return list(argv)
    return [SHELL, str(RunDir(run_path).node_script), str(words or run_path / "node.words"), *argv]


def output_tail(output: Path) -> str:
    """The end of the job's output, which has the errors of container runtimes."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - MOST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def entry_problem(environment: str, code: int, words: str | None, output: str) -> FatalNodeProblem | None:
    """Why node.sh could not enter the environment; None if the environment did not fail. Pure.

    `words` is the content of its file, which node.sh removes before it starts the command. A signal that ended node.sh
    is not a failure of the environment.
    """
    from echelon.wire.reports import FatalNodeProblem  # only here: `render` needs this module, and its start is timed

    lines = [line for line in (words or "").splitlines() if line.strip()]
    found = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
    what = f"the environment ({environment}) could not be entered"
    if found:
        error, hint = lines[found[-1]], "".join(lines[found[-1] + 1 :][:1])
        why = [error.removeprefix(ERROR), *lines[: found[0]][-MOST_LINES:]]
        return FatalNodeProblem(what=what, why="\n".join(why), hint=hint.removeprefix(HINT))
    if words is None and environment == "pyxis" and NO_SHELL in output:
        no_shell = f"the image has no {SHELL}\n{_last_line(output, NO_SHELL)}"
        return FatalNodeProblem(what=what, why=no_shell, hint="another --image, with bash and Python 3.10 in it")
    if words is None and environment == "pyxis" and PYXIS_PREFIX in output:
        words = ""  # srun creates the container before it starts node.sh
    if words is None or code <= 0 or code in SIGNALS:
        return None
    telling = [line for line in (words + output).splitlines() if not STATISTICS.search(line.rstrip())]
    why = [f"the command that enters it failed with exit code {code}", *telling[-MOST_LINES:]]
    return FatalNodeProblem(what=what, why="\n".join(why), hint="job.out in the run's folder has its output")


def _last_line(output: str, text: str) -> str:
    return [line for line in output.splitlines() if text in line][-1].strip()
