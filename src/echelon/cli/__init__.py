"""The command line: one lazily imported module per command."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from echelon.errors import ConfigError, EchelonError, EnvironmentProblem
from echelon.version import __version__

COMMANDS = {
    "run": "Run a script, follow it to its end, exit with its code.",
    "submit": "Start a run and return at once with its id.",
    "render": "Print the exact job script; start nothing.",
    "ls": "List runs, newest last.",
    "status": "How a run is doing.",
    "logs": "What the ranks wrote.",
    "why": "The verdict on a failed run.",
    "cancel": "End a run.",
    "resume": "Start the next attempt of a run that has ended.",
    "checkpoints": "What a run has saved, and whether it is whole.",
    "export": "Write a run's model to one ordinary file.",
    "init": "Write an echelon.toml for this project.",
}


class Commands(click.Group):
    """Knows the commands by name; imports only the one that was typed."""

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
    from echelon.config.suggest import closest

    if word.endswith(".py"):
        return ConfigError(f"no command {word!r}", hint=f"echelon run {word}")
    return ConfigError(f"no command {word!r}", hint=closest(word, COMMANDS) or "echelon --help lists the commands")


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
    """Every explainable failure becomes its message and its exit code here, and nowhere else."""
    code: object = 0
    try:
        code = commands.main(standalone_mode=False)
    except EchelonError as error:
        _report(str(error))
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = ConfigError.exit_code
    except click.UsageError as error:
        _report(str(_translated(error)))
        code = ConfigError.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has gone; nothing is left to flush
    except OSError as error:
        _report(str(EnvironmentProblem(str(error), hint="--debug shows where")))
        code = EnvironmentProblem.exit_code
    _leave(code if isinstance(code, int) else 0)


def _leave(code: int) -> NoReturn:
    """Without the interpreter's tidying up, which takes as long as many a command."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # a reader that has gone, or a stream that was closed from the start
    os._exit(code)


_debugging = False


def show_tracebacks(_ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    global _debugging
    _debugging = _debugging or value


def _report(text: str) -> None:
    if os.environ.get("ECHELON_DEBUG") or _debugging:
        import traceback

        traceback.print_exc()
    click.echo(text, err=True)


def _translated(error: click.UsageError) -> ConfigError:
    from echelon.config.suggest import closest

    command = error.ctx.command_path if error.ctx is not None else "echelon"
    if isinstance(error, click.NoSuchOption):
        guess = closest(error.option_name, error.possibilities or ()) or f"{command} --help lists the flags"
        return ConfigError(f"unknown flag {error.option_name}", origin="command line", hint=guess)
    return ConfigError(error.format_message(), origin="command line", hint=f"{command} --help")
