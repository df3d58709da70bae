"""Where settings come from, and who wins: flag > ECHELON_ variable > echelon.toml > user file > site > default."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echelon.config.options import BY_KEY, OPTIONS, Type
from echelon.config.suggest import closest
from echelon.errors import ConfigError
from echelon.job import masked

PROJECT_FILE = "echelon.toml"
SITES = Path(__file__).parent / "sites"
DEFAULT = "default"
CHOICE = ""
"""In a table of groups, the name under which the chosen one stands."""

# Variables of ours that are no settings: where runs live, and what ranks are told.
OUR_OWN = frozenset(
    f"ECHELON_{name}"
    for name in (
        *("RUNS", "SEAL", "DEBUG", "RUN_ID", "RUN_DIR", "NODE_DIR", "FOLDER", "ENCODED", "ATTEMPT", "GENERATION"),
        "SUBMIT_DIR",
    )
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    key: str
    value: Any
    origin: str


Layer = Mapping[str, Setting]


def default_layer() -> Layer:
    return {
        option.key: Setting(key=option.key, value=option.default, origin=DEFAULT)
        for option in OPTIONS
        if option.default is not None
    }


def flag_layer(values: Mapping[str, Any]) -> Layer:
    """What the command line gave; None and empty mean that it gave nothing."""
    return {
        key: Setting(key=key, value=value, origin=_typed_flag(key, value))
        for key, value in values.items()
        if value is not None and value is not False and value != () and value != {}
    }


def _typed_flag(key: str, value: Any) -> str:
    option = BY_KEY[key]
    if option.type is Type.SWITCH or option.type.is_repeatable:
        return option.flag
    return f"{option.flag} {value}"


def variable_layer(environ: Mapping[str, str]) -> Layer:
    by_variable = {option.variable: option for option in OPTIONS if not option.type.is_table}
    found = {}
    for name, text in environ.items():
        if not name.startswith("ECHELON_") or name in OUR_OWN:
            continue
        option = by_variable.get(name)
        if option is None:
            raise ConfigError(
                f"no setting belongs to the variable {name}",
                origin=f"{name}={masked({name: text})[name]} in the environment",
                hint=closest(name, by_variable) or "unset it; echelon run --help lists the settings",
            )
        found[option.key] = Setting(key=option.key, value=text, origin=f"{name}={text}")
    return found


def file_layer(path: Path) -> Layer:
    """The settings of a TOML file, each with its line. An unknown key is refused."""
    text, data = _read_toml(path)
    for key in data:
        if key not in BY_KEY:
            raise ConfigError(
                f"unknown key {key!r}",
                origin=f"{path}:{line_of(text, key)}",
                hint=closest(key, BY_KEY) or "echelon run --help lists the settings",
            )
    return {
        key: Setting(key=key, value=value, origin=f"{path}:{line_of(text, key)} ({key} = {_short(value)})")
        for key, value in data.items()
    }


def _read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}", origin=str(path), why=str(error), hint="mend it, or move it out of the way"
        ) from error
    try:
        return text, _parse_toml(text)
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML", origin=str(path), why=str(error)) from error


def _parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    data: dict[str, Any] = tomllib.loads(text)
    return data


def _short(value: Any) -> str:
    return "{...}" if isinstance(value, dict) else repr(value) if isinstance(value, str) else str(value).lower()


def line_of(text: str, key: str) -> int:
    """The line that sets a key or opens its table; 1 where the parser saw it and we do not."""
    pattern = re.compile(rf"""^\s*(\[\s*)?["']?{re.escape(key)}["']?\s*[=\].]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def project_file(folder: Path) -> Path | None:
    """echelon.toml of this folder or the nearest one above it, not beyond the project or the home folder."""
    for candidate in (folder, *folder.parents):
        if (candidate / PROJECT_FILE).exists():
            return candidate / PROJECT_FILE
        if (candidate / ".git").exists() or candidate == Path.home():
            return None
    return None


def user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")  # noqa: PTH118
    return Path(base) / "echelon" / "config.toml"


def site_layer(name: str, origin: str) -> Layer:
    """What a site's profile says: one of ours, by its name, or a file of the user's own."""
    path = Path(name) if name.endswith(".toml") else SITES / f"{name}.toml"
    if not path.exists():
        known = sorted(file.stem for file in SITES.glob("*.toml"))
        raise ConfigError(
            f"no profile of a site is called {name!r}", origin=origin, why=f"there is {', '.join(known)}",
            hint=closest(name, known) or "--site FILE.toml reads one of your own",
        )  # fmt: skip
    layer = file_layer(path)
    if "site" in layer:
        raise ConfigError("a site's profile cannot name another", origin=layer["site"].origin)
    return layer


def all_layers(flags: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> list[Layer]:
    """The weakest first."""
    layers: list[Layer] = []
    if user_file(environ).exists():
        layers.append(file_layer(user_file(environ)))
    project = project_file(folder)
    if project is not None:
        layers.append(file_layer(project))
    layers += [variable_layer(environ), flag_layer(flags)]
    site = merged(layers).get("site")
    return [default_layer(), *([site_layer(str(site.value), site.origin)] if site else []), *layers]


def merged(layers: Iterable[Layer]) -> dict[str, Setting]:
    """The strongest setting of each key; tables of variables add up, name by name."""
    result: dict[str, Setting] = {}
    for layer in layers:
        for key, setting in layer.items():
            result[key] = _added(result[key], setting) if key in result else setting
    return result


def _added(old: Setting, new: Setting) -> Setting:
    """The stronger one, with what it leaves standing of the weaker."""
    values = [old.value, new.value]
    if BY_KEY[new.key].type is Type.HOSTS and any(isinstance(value, dict) for value in values):
        values = [value if isinstance(value, dict) else {CHOICE: value} for value in values]
    if not all(isinstance(value, dict) for value in values):
        return new
    origin = f"{old.origin}, {new.origin}" if isinstance(new.value, dict) else new.origin
    return Setting(key=new.key, value={**values[0], **values[1]}, origin=origin)
