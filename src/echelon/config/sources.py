"""Sources of settings, strongest first: flag > ECHELON_ variable > echelon.toml > user file > site > default."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from echelon.backends import detect_backend
from echelon.config.option import Type
from echelon.config.options import BY_KEY, OPTIONS
from echelon.errors import ConfigError
from echelon.job import mask_secrets
from echelon.placement import RANK_VARIABLES
from echelon.record import record
from echelon.system.trust import UntrustedFile, read_trusted
from echelon.text import suggest_closest

PROJECT_FILE = "echelon.toml"
SITES = Path(__file__).parent / "sites"
DEFAULT = "default"
CHOSEN_HOSTS = ""
"""Key of the chosen hosts in a table of groups."""


INTERNAL_VARIABLES = frozenset(
    {"ECHELON_RUNS", "ECHELON_SEAL", "ECHELON_DEBUG", "ECHELON_ENCODED"}
    | {name for name in RANK_VARIABLES if name.startswith("ECHELON_")}
)
"""ECHELON_ variables that are not settings. `echelon` in a rank inherits those that a rank has."""


@record
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
    """Settings of the command line. None, False and empty values mean that the flag was not given."""
    return {
        key: Setting(key=key, value=value, origin=_flag_as_typed(key, value))
        for key, value in values.items()
        if value is not None and value is not False and value != () and value != {}
    }


def _flag_as_typed(key: str, value: Any) -> str:
    option = BY_KEY[key]
    if option.type is Type.SWITCH or option.type.is_repeatable:
        return option.flag
    return f"{option.flag} {value}"


def variable_layer(environ: Mapping[str, str]) -> Layer:
    by_variable = {option.variable: option for option in OPTIONS if not option.type.is_table}
    found = {}
    for name, text in environ.items():
        if not name.startswith("ECHELON_") or name in INTERNAL_VARIABLES:
            continue
        option = by_variable.get(name)
        if option is None:
            raise ConfigError(
                f"unknown variable {name}",
                origin=f"{name}={mask_secrets({name: text})[name]} in the environment",
                hint=suggest_closest(name, by_variable) or f"unset {name}; echelon run --help lists the settings",
            )
        found[option.key] = Setting(key=option.key, value=text, origin=f"{name}={text}")
    return found


def file_layer(path: Path, below: Sequence[Path] = (), origin: str | None = None) -> Layer:
    """The settings of a TOML file, each with its line. Raises ConfigError for an unknown key. Raises UntrustedFile if
    another user can change the file, its folder, or a folder in `below`: those between it and the current folder."""
    try:
        text = read_trusted(path, [path.parent, *below], origin=origin)
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable_file(path, error) from error
    return _parse_layer(path, text)


def _unreadable_file(path: Path, error: OSError | UnicodeDecodeError) -> ConfigError:
    why = getattr(error, "strerror", None) or str(error)
    return ConfigError(f"cannot read {path}", origin=str(path), why=why, hint="correct the file, or remove it")


def _parse_layer(path: Path, text: str) -> Layer:
    data = _read_toml(path, text)
    for key in data:
        if key not in BY_KEY:
            raise ConfigError(
                f"unknown key {key!r}",
                origin=f"{path}:{find_line(text, key)}",
                hint=suggest_closest(key, BY_KEY) or "echelon run --help lists the settings",
            )
    return {
        key: Setting(key=key, value=value, origin=f"{path}:{find_line(text, key)} ({key} = {_format_value(value)})")
        for key, value in data.items()
    }


def _read_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return _parse_toml(text)
    except ValueError as error:
        raise ConfigError(
            f"{path} is not valid TOML", origin=str(path), why=str(error), hint="correct that line; text needs quotes"
        ) from error


def _parse_toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    data: dict[str, Any] = tomllib.loads(text)
    return data


def _format_value(value: Any) -> str:
    return "{...}" if isinstance(value, dict) else repr(value) if isinstance(value, str) else str(value).lower()


def find_line(text: str, key: str) -> int:
    """The line that sets a key or opens its table; 1 if this simple search does not find it."""
    pattern = re.compile(rf"""^\s*(\[\s*)?["']?{re.escape(key)}["']?\s*[=\].]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)), 1)


def find_project_file(folder: Path) -> Path | None:
    """echelon.toml in `folder` or its nearest parent. The search ends at the project's root or the home folder."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111  Path.home raises if the user has no entry and no HOME
    for candidate in (folder, *folder.parents):
        if _exists(candidate / PROJECT_FILE):
            return candidate / PROJECT_FILE
        if _exists(candidate / ".git") or candidate == home:
            return None
    return None


def _exists(path: Path) -> bool:
    """Returns False also for a path in a folder that this user cannot read."""
    return os.path.exists(path)  # noqa: PTH110  Path.exists raises PermissionError before Python 3.14


def user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")  # noqa: PTH118
    return Path(base) / "echelon" / "config.toml"


def site_layer(name: str, origin: str) -> Layer:
    """The settings of a site profile: the name of a built-in one, or the path of a .toml file."""
    path = Path(name) if name.endswith(".toml") else SITES / f"{name}.toml"
    if not _exists(path):
        known = sorted(file.stem for file in SITES.glob("*.toml"))
        raise ConfigError(
            f"unknown site profile {name!r}; available: {', '.join(known)}",
            origin=origin,
            hint=suggest_closest(name, known) or "--site FILE.toml for a profile of your own",
        )
    ours = path.parent == SITES  # installed with this code, so as trustworthy as the code
    layer = _parse_layer(path, path.read_text(encoding="utf-8")) if ours else file_layer(path, origin=origin)
    if "site" in layer:
        raise ConfigError(
            "a site profile cannot name another one", origin=layer["site"].origin, hint="remove that line"
        )
    return layer


def load_layers(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
    used: list[str] | None = None,
) -> list[Layer]:
    """All layers, weakest first. Ignores files that another user could change, and reports each with `say`. Adds the
    names of the other files to `used`, strongest first."""
    layers: list[Layer] = []
    used = [] if used is None else used
    for path, below in _config_files(environ, folder):
        try:
            layers.append(file_layer(path, below))
            used.insert(0, str(path))
        except UntrustedFile as problem:
            say(f"warning: ignored {path}: {problem.why}; try: {problem.hint}")
    layers += [variable_layer(environ), flag_layer(flags)]
    site = merge_layers(layers).get("site")
    if site is not None:
        layers.insert(0, site_layer(str(site.value), site.origin))
        used.append(f"site {site.value}")
    return [default_layer(), *layers]


def _config_files(environ: Mapping[str, str], folder: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Configuration files, each with the folders between it and the current folder."""
    if _exists(user_file(environ)):
        yield user_file(environ), []
    project = find_project_file(folder)
    if project is not None:
        yield project, [one for one in (folder, *folder.parents) if project.parent in one.parents]


def merge_layers(layers: Iterable[Layer]) -> dict[str, Setting]:
    """The strongest setting of each key. Tables are merged name by name."""
    result: dict[str, Setting] = {}
    for layer in layers:
        for key, setting in layer.items():
            result[key] = _merge_settings(result[key], setting) if key in result else setting
    return result


def _merge_settings(old: Setting, new: Setting) -> Setting:
    """The new setting; if both are tables, merged with the names of the old one that it does not set."""
    values = [old.value, new.value]
    if BY_KEY[new.key].type is Type.HOSTS and any(isinstance(value, dict) for value in values):
        values = [value if isinstance(value, dict) else {CHOSEN_HOSTS: value} for value in values]
    if not all(isinstance(value, dict) for value in values):
        return new
    origin = f"{old.origin}, {new.origin}" if isinstance(new.value, dict) else new.origin
    return Setting(key=new.key, value={**values[0], **values[1]}, origin=origin)


def detect_backend_setting(environ: Mapping[str, str], *, inside: bool) -> Setting:
    """The setting `on`, with the reason as its origin. `inside` allows the use of the current allocation."""
    name, why = detect_backend(environ, use_allocation=inside)
    return Setting(key="on", value=name, origin=why)
