"""`echelon init`: an echelon.toml for this project."""

from __future__ import annotations

from pathlib import Path

import click

from echelon.cli.options import debug_option
from echelon.cli.output import say
from echelon.config.layers import PROJECT_FILE
from echelon.config.options import OPTIONS, Option, Type
from echelon.errors import ConfigError, EnvironmentProblem

HEAD = """\
# Settings of this project for echelon. A flag or an ECHELON_ variable wins over what stands here.
# Take away the # of what you want to set; echelon render --explain train.py shows what counts in the end.
"""


@click.command(help="Write an echelon.toml with every setting, commented out, for you to fill in.")
@debug_option
def command() -> None:
    path = Path(PROJECT_FILE)
    try:
        with path.open("x") as file:
            file.write(template())
    except FileExistsError:
        raise ConfigError(f"{path} is already there", why=f"in {Path.cwd()}", hint=f"edit {path}") from None
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}", why=error.strerror, hint="go to a folder of yours") from error
    say(f"wrote {path}")


def template() -> str:
    return HEAD + "".join(f"\n# {option.help}\n{_line(option)}\n" for option in OPTIONS)


def _line(option: Option) -> str:
    if option.type is Type.QUEUES:
        return f"# [{option.key}]\n# gpu = {{ cpus = 48, gpus = 4, mem_gb = 382 }}"
    if option.type.is_table:
        return f'# [{option.key}]\n# {"NAME" if option.type is Type.VARIABLES else "name"} = "value"'
    examples = {
        Type.COUNT: 1, Type.DURATION: "2h", Type.SWITCH: False, Type.MEMORY: "64G", Type.LIST: ["..."],
        Type.CHOICE: next(iter(option.choices), None),
    }  # fmt: skip
    value = option.default if option.default is not None else examples.get(option.type, "...")
    if isinstance(value, list):
        return f'# {option.key} = ["..."]'
    shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return f"# {option.key} = {shown}"
