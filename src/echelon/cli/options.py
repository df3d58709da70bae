"""The flags of run, submit and render, made from the one table of settings; where ours end, the script's begin."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from echelon.cli import show_tracebacks
from echelon.cli.output import say
from echelon.command import typed
from echelon.config.choice import chosen
from echelon.config.decode import Machine, Settings, job_of, secrets_of
from echelon.config.layers import CHOICE, Setting, all_layers, flag_layer, merged
from echelon.config.options import OPTIONS, Option, Type
from echelon.errors import ConfigError
from echelon.job import MASK, Job, Script, ScriptKind, looks_secret
from echelon.machine import check_python, default_python
from echelon.registry import member
from echelon.run_dir import RunDir
from echelon.schedulers import Scheduler
from echelon.wording import counted

USAGE = "[OPTIONS] (SCRIPT.py | -m MODULE | -- COMMAND) [ARGUMENTS]..."


class ScriptCommand(click.Command):
    """Everything after the script belongs to the script, byte for byte."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, ctx.meta["echelon.script"] = split_script(args, self._takes_value)
        return super().parse_args(ctx, ours)

    def _takes_value(self, flag: str) -> bool:
        for parameter in self.params:
            if isinstance(parameter, click.Option) and flag in parameter.opts:
                return not parameter.is_flag
        return False

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, USAGE)


def split_script(args: Sequence[str], takes_value: Callable[[str], bool]) -> tuple[list[str], Script | None]:
    """Our own words, and the script with its arguments. Pure."""
    index = 0
    while index < len(args):
        word = args[index]
        if word == "--":
            return list(args[:index]), _script(ScriptKind.COMMAND, args[index + 1 :])
        if word == "-m":
            return list(args[:index]), _script(ScriptKind.MODULE, args[index + 1 :])
        if not word.startswith("-") or word == "-":
            return list(args[:index]), _script(ScriptKind.FILE, args[index:])
        bare = "=" not in word if word.startswith("--") else len(word) == 2
        index += 2 if bare and takes_value(word) else 1
    return list(args), None


def _script(kind: ScriptKind, words: Sequence[str]) -> Script | None:
    return Script(kind=kind, target=words[0], args=tuple(words[1:])) if words else None


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (option for option in reversed(OPTIONS) if option.has_flag):
        command = _click_option(option)(command)
    return command


def _click_option(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    names = [name for name in (option.short, option.flag, option.key) if name]
    shown = f"{option.help} [default: {option.default}]" if option.default not in (None, False, 0) else option.help
    if option.type is Type.SWITCH:
        return click.option(*names, is_flag=True, help=shown)
    return click.option(
        *names, metavar=option.metavar or _metavar(option), help=shown, multiple=option.type.is_repeatable
    )


def _metavar(option: Option) -> str:
    words = {Type.COUNT: "N", Type.DURATION: "TIME", Type.CHOICE: "|".join(option.choices)}
    return words.get(option.type, "TEXT")


def debug_option(command: Callable[..., Any]) -> Callable[..., Any]:
    option = click.option(
        "--debug", is_flag=True, expose_value=False, callback=show_tracebacks, help="Show tracebacks of errors."
    )
    return option(command)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line and all the layers below it come to."""

    job: Job
    settings: Settings
    secrets: dict[str, str]

    def summary(self, run_dirs: Sequence[RunDir]) -> str:
        """What was started where, once it has been."""
        where: str = member("scheduler", self.job.scheduler).summary(self.job, run_dirs[0].read_native_id())
        size = self.size() if self.job.booking.array is None else f"{counted(len(run_dirs), 'run')} of {self.size()}"
        return ", ".join(filter(None, (where, size)))

    def size(self) -> str:
        resources = self.job.resources
        size = f"{counted(resources.nodes, 'node')} x {counted(resources.procs_per_node, 'rank')}"
        if resources.gpus_per_node:
            return f"{size}, {counted(resources.gpus_per_node, 'GPU')} each"
        return f"{size}, no GPU{self._why_no_gpu()}, so on CPU with gloo"

    def _why_no_gpu(self) -> str:
        """Said only where somebody may have expected some."""
        left_open = self.settings.get("gpus_per_node") is None and not self.settings.get("cpu")
        return " was asked for (-g)" if left_open and self.job.scheduler in ("slurm", "pbs", "ssh") else ""

    def origins(self) -> dict[str, str]:
        return {key: origin for key, _, origin in self.settings.explained()}

    def explained(self) -> list[tuple[str, str, str]]:
        return [(key, _shown(key, value), origin) for key, value, origin in self.settings.explained()]


def _shown(key: str, value: Any) -> str:
    if isinstance(value, dict) and CHOICE in value:
        return str(value[CHOICE])
    if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
        return ", ".join(value)
    if isinstance(value, dict):
        masked = {name: MASK if key == "set" and looks_secret(name) else text for name, text in value.items()}
        return ", ".join(f"{name}={text}" if text not in ("", True) else name for name, text in masked.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def request_of(ctx: click.Context, flags: dict[str, Any], *, inside: bool = True) -> Request:
    """`inside` may use the allocation that this is run in."""
    script = check_script(ctx.meta["echelon.script"], ctx.command_path)
    flags["set"] = parse_assignments(flags.get("set", ()))
    for native in ("slurm", "pbs", "launcher_option"):
        flags[native] = dict(text.partition("=")[::2] for text in flags.get(native, ()))
    settings = Settings(merged(all_layers(flags, os.environ, Path.cwd())))
    settings = settings.filled([chosen(os.environ, inside=inside)])
    _check_use(settings, flag_layer(flags))
    scheduler: Scheduler = member("scheduler", settings.get("on"))
    fit = scheduler.fit(settings, os.environ)
    settings = settings.filled(Setting(key=key, value=one.value, origin=one.origin) for key, one in fit.found.items())
    machine = Machine(
        cwd=str(Path.cwd()), python=default_python(os.environ), gpus=fit.gpus_per_node, hosts=fit.hosts,
        host_python=sys.executable,
    )  # fmt: skip
    job = job_of(settings, script, machine)
    _check_launcher(job, settings)
    if not fit.python_is_there and not job.is_enclosed:
        warning = check_python(job.python, settings.origin("python"), os.environ, here=scheduler.STARTS_HERE)
        if warning:
            say(f"warning: {warning}")
    return Request(job=job, settings=settings, secrets=secrets_of(settings))


def _check_use(settings: Settings, typed_ones: Mapping[str, Setting]) -> None:
    """A flag that would do nothing is refused; a file or a variable may be meant for another scheduler or launcher."""
    for kind, flag, users in (("scheduler", "on", "only"), ("launcher", "launcher", "launchers")):
        name = settings.get(flag)
        useless = [o for o in OPTIONS if getattr(o, users) and name not in getattr(o, users) and settings.asked(o.key)]
        for option in useless:
            if option.key in typed_ones:
                raise ConfigError(
                    f"{option.flag} means nothing to the {kind} {name}",
                    origin=f"{typed_ones[option.key].origin}; the {kind}: {settings.origin(flag)}",
                    why=f"only {' and '.join(getattr(option, users))} can use it",
                    hint=f"leave it out, or --{flag} {getattr(option, users)[0]}",
                )
        if useless:
            say(f"not used by the {kind} {name}: {', '.join(option.key for option in useless)}")


def _check_launcher(job: Job, settings: Settings) -> None:
    if job.launcher == "ranks":
        return
    from echelon.launchers.pairs import objection, taken_option

    origin = settings.origin("launcher")
    found = objection(job.launcher, job.scheduler, job.environment, in_slurm="SLURM_JOB_ID" in os.environ)
    if found is not None:
        place = job.scheduler if job.environment == "bare" else f"{job.scheduler} with {job.environment}"
        raise ConfigError(
            f"the launcher {job.launcher} does not work on {place}", origin=origin, why=found.why, hint=found.hint
        )
    taken = taken_option(job)
    if taken is not None:
        name, setting = taken
        raise ConfigError(
            f"{job.launcher}'s --{name} is set by echelon itself",
            origin=settings.origin("launcher_option"),
            hint=setting or "echelon render shows what it is given",
        )


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} sets nothing", origin="--set", hint=f"--set {name}=VALUE")
        pairs[name] = value
    return pairs


def check_script(script: Script | None, command_path: str) -> Script:
    """Refused before anything starts: no script, one that is not there, one that Python could not run."""
    if script is None:
        raise ConfigError("no script was given", origin="command line", hint=f"{command_path} train.py")
    if script.kind is not ScriptKind.FILE:
        return script
    path = Path(script.target)
    if not path.exists():
        raise ConfigError(
            f"no script at {script.target}", origin="command line", why=f"looked in {Path.cwd()}",
            hint=_near(path) or f"{command_path} PATH/TO/train.py",
        )  # fmt: skip
    if not os.access(path, os.R_OK):
        raise ConfigError(
            f"cannot read {script.target}", origin="command line", hint=typed(("chmod", "u+r", script.target))
        )
    if path.suffix != ".py" and path.is_file() and _is_program(path):
        raise ConfigError(
            f"{script.target} is not a Python script", origin="command line",
            hint=f"{command_path} -- {typed((script.target if '/' in script.target else './' + script.target,))}",
        )  # fmt: skip
    return script


def _near(path: Path) -> str | None:
    from echelon.config.suggest import closest

    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".py"]
    except OSError:
        return None
    return closest(path.name, names)


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(64)
    return head.startswith(b"\x7fELF") or (head.startswith(b"#!") and b"python" not in head.split(b"\n")[0])
