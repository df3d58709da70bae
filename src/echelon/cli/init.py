"""`echelon init`: writes an echelon.toml for this project."""

from __future__ import annotations

from pathlib import Path

import click

from echelon.cli._options import debug_option
from echelon.cli._output import say
from echelon.config.option import Option, Type
from echelon.config.options import OPTIONS
from echelon.config.sources import PROJECT_FILE
from echelon.errors import ConfigError, EnvironmentProblem

FILE_HEADER = """\
# Settings of this project for echelon. Flags and ECHELON_ variables override them.
# Remove the # in front of a setting to use it; echelon render --explain train.py shows all values and their origin.
"""


@click.command(help="Write an echelon.toml that lists every setting, commented out.")
@debug_option
def command() -> None:
    path = Path(PROJECT_FILE)
    try:
        with path.open("x") as file:
            file.write(settings_template())
    except FileExistsError:
        raise ConfigError(f"{path} already exists", why=f"in {Path.cwd()}", hint=f"edit {path}") from None
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {path}", why=error.strerror, hint="cd to a folder that you can write to"
        ) from error
    say(f"wrote {path}")


def settings_template() -> str:
    return FILE_HEADER + "".join(f"\n# {option.help}\n{_setting_line(option)}\n" for option in OPTIONS)


def _setting_line(option: Option) -> str:
    if option.type is Type.QUEUES:
        return f"# [{option.key}]\n# gpu = {{ cpus = 48, gpus = 4, mem_gb = 382 }}"
    if option.type.is_table:
        return f'# [{option.key}]\n# {"NAME" if option.type is Type.VARIABLES else "name"} = "value"'
    examples = {
        Type.COUNT: 1,
        Type.DURATION: "2h",
        Type.SWITCH: False,
        Type.MEMORY: "64G",
        Type.LIST: ["..."],
        Type.CHOICE: next(iter(option.choices), None),
    }
    value = option.default if option.default is not None else examples.get(option.type, "...")
    if isinstance(value, list):
        return f'# {option.key} = ["..."]'
    shown = f'"{value}"' if isinstance(value, str) else str(value).lower()
    return f"# {option.key} = {shown}"
