"""The command line: one lazily imported module per command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

import click

from echelon.errors import ConfigError, EchelonError, EnvironmentProblem
from echelon.version import __version__

COMMANDS = {
    "run": "Run a script, follow it to its end, exit with its code.",
    "submit": "Start a run in the background and print its id.",
    "render": "Print the exact job script; start nothing.",
    "ls": "List runs, newest last.",
    "status": "Show the state of a run.",
    "logs": "Print the output of the ranks.",
    "why": "Explain why a run failed.",
    "cancel": "End a run.",
    "resume": "Start the next attempt of a run that has ended.",
    "checkpoints": "List the checkpoints of a run and check them.",
    "export": "Write the model of a run to one file.",
    "init": "Write an echelon.toml for this project.",
    "lint": "Find the traps in a hand-written sbatch or PBS script.",
    "doctor": "Check this machine, or the nodes of a short job, before a run.",
}


class Commands(click.Group):
    """Lists all commands, but imports only the module of the one that is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"echelon.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise _unknown_command(args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _unknown_command(word: str) -> ConfigError:
    from echelon.text import suggest_closest

    if word.endswith(".py"):
        return ConfigError(f"unknown command {word!r}", origin="command line", hint=f"echelon run {word}")
    guess = suggest_closest(word, COMMANDS) or "echelon --help lists the commands"
    return ConfigError(f"unknown command {word!r}", origin="command line", hint=guess)


@click.group(
    cls=Commands,
    help="One PyTorch script, every GPU you can reach, one command, and it keeps running.\n\n"
    "    echelon run -N 2 -g 4 train.py --lr 1e-4",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="echelon")
def commands() -> None:
    pass


def main() -> NoReturn:
    """Entry point. Only this function turns errors into messages and exit codes."""
    code: object = 0
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = commands.main(standalone_mode=False)
    except EchelonError as error:
        _print_error(str(error))
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = ConfigError.exit_code
    except click.UsageError as error:
        _print_error(str(_translate_usage_error(error)))
        code = ConfigError.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        from echelon.cli._output import redirect_to_null

        redirect_to_null(1)  # so that flushing at exit cannot fail
    except OSError as error:
        _print_error(str(_describe_os_error(error)))
        code = EnvironmentProblem.exit_code
    _exit_process(code if isinstance(code, int) else 0)


def _describe_os_error(error: OSError) -> EnvironmentProblem:
    """A message for an OSError that no other code has translated."""
    try:
        os.getcwd()  # noqa: PTH109  pathlib is not needed otherwise
    except OSError:
        return EnvironmentProblem("the current folder does not exist any more", hint="cd to another folder")
    what = f"cannot use {error.filename}" if error.filename else "a system call failed"
    return EnvironmentProblem(what, why=error.strerror or str(error), hint="--debug shows the traceback")


def _exit_process(code: int) -> NoReturn:
    """Exits without the interpreter's shutdown, which takes as long as a short command."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # the reader is gone, or the stream was closed from the start
    os._exit(code)


_show_tracebacks = False


def show_tracebacks(_ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    global _show_tracebacks
    _show_tracebacks = _show_tracebacks or value


def _print_error(text: str) -> None:
    if os.environ.get("ECHELON_DEBUG") or _show_tracebacks:
        import traceback

        traceback.print_exc()
    from echelon.cli._output import print_error

    print_error(text)


def _translate_usage_error(error: click.UsageError) -> ConfigError:
    from echelon.cli._help import OTHER_TOOL_FLAGS
    from echelon.text import suggest_closest

    command = error.ctx.command_path if error.ctx is not None else _typed_command()
    if isinstance(error, click.NoSuchOption):
        known = OTHER_TOOL_FLAGS.get(error.option_name) if command.split()[-1] in ("run", "submit", "render") else None
        guess = (
            known
            or suggest_closest(error.option_name, error.possibilities or ())
            or f"{command} --help lists the flags"
        )
        return ConfigError(f"unknown flag {error.option_name}", origin="command line", hint=guess)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        name = (error.param.name or "").upper()
        lists = "; echelon ls lists the runs" if name == "RUN" else ""
        return ConfigError(f"no {name} was given", origin="command line", hint=f"{command} --help{lists}")
    return ConfigError(error.format_message(), origin="command line", hint=f"{command} --help")


def _typed_command() -> str:
    """The command, for click errors that do not name it."""
    return " ".join(("echelon", *(word for word in sys.argv[1:2] if word in COMMANDS)))
