"""The flags of run, submit and render, made from the table of settings, and the split before the script's arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from echelon.backends import backend, backends_supporting
from echelon.cli import show_tracebacks
from echelon.cli._help import help_text, metavar, write_examples, write_groups
from echelon.cli._output import say
from echelon.config.decode import Machine, Settings, build_job, secret_values
from echelon.config.option import Option, Type
from echelon.config.options import BY_KEY, OPTIONS
from echelon.config.preflight import check_script
from echelon.config.sources import CHOSEN_HOSTS, Setting, detect_backend_setting, flag_layer, load_layers, merge_layers
from echelon.errors import ConfigError
from echelon.job import MASK, Job, Script, ScriptKind, looks_secret
from echelon.record import record
from echelon.run_dir import RunDir
from echelon.system.machine import check_python, default_python
from echelon.text import plural

HELP_ALL = "echelon.help_all"
USAGE = "[OPTIONS] (SCRIPT.py | -m MODULE | -- COMMAND) [ARGUMENTS]..."


class ScriptCommand(click.Command):
    """Passes everything after the script to the script unchanged."""

    usage = USAGE
    shows_examples = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, ctx.meta["echelon.script"] = split_script(args, self._takes_value)
        return super().parse_args(ctx, ours)

    def _takes_value(self, flag: str) -> bool:
        for parameter in self.params:
            if isinstance(parameter, click.Option) and flag in parameter.opts:
                return not parameter.is_flag
        return False

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, self.usage)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        if self.shows_examples:
            write_examples(formatter, ctx.info_name or "run")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        others = [p.get_help_record(ctx) for p in self.get_params(ctx) if p.name not in BY_KEY]
        write_groups(formatter, [row for row in others if row], everything=ctx.meta.get(HELP_ALL, False))


def split_script(args: Sequence[str], takes_value: Callable[[str], bool]) -> tuple[list[str], Script | None]:
    """Echelon's own arguments, and the script with its arguments or None. Pure."""
    index = 0
    while index < len(args):
        word = args[index]
        if word == "--":
            return list(args[:index]), _make_script(ScriptKind.COMMAND, args[index + 1 :])
        if word == "-m":
            return list(args[:index]), _make_script(ScriptKind.MODULE, args[index + 1 :])
        if not word.startswith("-") or word == "-":
            return list(args[:index]), _make_script(ScriptKind.FILE, args[index:])
        bare = "=" not in word if word.startswith("--") else len(word) == 2
        index += 2 if bare and takes_value(word) else 1
    return list(args), None


def _make_script(kind: ScriptKind, words: Sequence[str]) -> Script | None:
    return Script(kind=kind, target=words[0], args=tuple(words[1:])) if words else None


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (option for option in reversed(OPTIONS) if option.has_flag):
        command = _click_option(option)(command)
    help_all = click.option(
        "--help-all",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all_options,
        help="Show every option, with its full description, and exit.",
    )
    return help_all(command)


def _show_all_options(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[HELP_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _click_option(option: Option) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    names = [name for name in (option.short, option.flag, option.key) if name]
    if option.type is Type.SWITCH:
        return click.option(*names, is_flag=True, help=help_text(option))
    return click.option(*names, metavar=metavar(option), help=help_text(option), multiple=option.type.is_repeatable)


def debug_option(command: Callable[..., Any]) -> Callable[..., Any]:
    option = click.option(
        "--debug", is_flag=True, expose_value=False, callback=show_tracebacks, help="Show tracebacks of errors."
    )
    return option(command)


@record
class Request:
    """The job and settings that result from the command line and all other sources."""

    job: Job
    settings: Settings
    secrets: dict[str, str]

    def summary(self, run_dirs: Sequence[RunDir]) -> str:
        """Backend, id and size of the submitted runs. Call after the submission."""
        where = backend(self.job.scheduler).submission_summary(self.job, run_dirs[0].read_native_id())
        size = (
            self.describe_size()
            if self.job.booking.array is None
            else f"{plural(len(run_dirs), 'run')} of {self.describe_size()}"
        )
        return ", ".join(filter(None, (where, size)))

    def describe_size(self) -> str:
        resources = self.job.resources
        size = f"{plural(resources.nodes, 'node')} x {plural(resources.procs_per_node, 'rank')}"
        if resources.gpus_per_node:
            return f"{size}, {plural(resources.gpus_per_node, 'GPU')} each"
        return f"{size} on CPU ({self._why_no_gpu()})"

    def _why_no_gpu(self) -> str:
        if self.settings.get("cpu"):
            return "--cpu"
        return "no GPUs found" if backend(self.job.scheduler).detects_gpus else "no GPUs requested, see -g"

    def origins(self) -> dict[str, str]:
        return {key: origin for key, _, origin in self.settings.explain()}

    def explain(self) -> list[tuple[str, str, str]]:
        return [(key, _format_setting(key, value), origin) for key, value, origin in self.settings.explain()]


def _format_setting(key: str, value: Any) -> str:
    if isinstance(value, dict) and CHOSEN_HOSTS in value:
        return str(value[CHOSEN_HOSTS])
    if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
        return ", ".join(value)
    if isinstance(value, dict):
        masked = {name: MASK if key == "set" and looks_secret(name) else text for name, text in value.items()}
        return ", ".join(f"{name}={text}" if text not in ("", True) else name for name, text in masked.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def build_request(ctx: click.Context, flags: dict[str, Any], *, inside: bool = True) -> Request:
    """`inside` allows the use of the current allocation. Prints warnings and the files that settings come
    from. Raises ConfigError."""
    script = check_script(ctx.meta["echelon.script"], ctx.command_path)
    flags["set"] = parse_assignments(flags.get("set", ()))
    for native in (option.key for option in OPTIONS if option.type is Type.NATIVE):
        flags[native] = dict(text.partition("=")[::2] for text in flags.get(native, ()))
    files: list[str] = []
    settings = Settings(merge_layers(load_layers(flags, os.environ, Path.cwd(), say, files)))
    is_rehearsal = settings.get("on") is not None and settings.backend.rehearses_nodes
    settings = settings.with_values([detect_backend_setting(os.environ, inside=inside)])
    _check_flags_have_effect(settings, flag_layer(flags), is_rehearsal=is_rehearsal)
    resolved = settings.backend.resolve(settings, os.environ)
    settings = settings.with_values(
        Setting(key=key, value=one.value, origin=one.origin) for key, one in resolved.values.items()
    )
    machine = Machine(
        cwd=str(Path.cwd()),
        python=default_python(os.environ),
        gpus=resolved.gpus_per_node,
        hosts=resolved.hosts,
        host_python=sys.executable,
    )
    job = build_job(settings, script, machine)
    _check_launcher(job, settings)
    if files:
        say(f"settings from {', '.join(files)}")
    if not resolved.uses_python_of_hosts and not job.is_enclosed:
        warning = check_python(
            job.python, settings.origin("python"), os.environ, here=settings.backend.runs_script_here
        )
        if warning:
            say(f"warning: {warning}")
    return Request(job=job, settings=settings, secrets=secret_values(settings))


def _check_flags_have_effect(settings: Settings, typed: Mapping[str, Setting], *, is_rehearsal: bool) -> None:
    """Raises ConfigError for a flag without effect.

    In two cases only a message is printed: if the user has chosen a rehearsal, which accepts flags of a scheduler, or
    if the value comes from a file or a variable, which may be meant for another backend or launcher.
    """
    for kind, flag, users in (("backend", "on", _backends_using), ("launcher", "launcher", _launchers_using)):
        name = settings.get(flag)
        useless = [o for o in OPTIONS if name not in (users(o) or (name,)) and settings.asked(o.key)]
        refused = [o for o in useless if o.key in typed and not (is_rehearsal and kind == "backend")]
        if refused:
            option, usable = refused[0], users(refused[0])
            can_ignore = kind == "backend" and settings.backend.rehearses_nodes
            ignore = f"; --on {name} ignores {option.flag}" if can_ignore else ""
            raise ConfigError(
                f"{option.flag} has no effect with {kind} {name}",
                origin=f"{typed[option.key].origin}; {kind} {name}: {settings.origin(flag)}",
                why=f"only {', '.join(usable)} can use it",
                hint=f"remove {option.flag}, or add --{flag} {usable[0]}{ignore}",
            )
        if useless:
            names = ", ".join(option.flag if option.key in typed else option.key for option in useless)
            say(f"no effect with {kind} {name}: {names}")


def _backends_using(option: Option) -> Sequence[str]:
    """The backends that use it; empty for all."""
    return backends_supporting(option.key) if option.for_some else ()


def _launchers_using(option: Option) -> Sequence[str]:
    """The launchers that use it; empty for all."""
    return option.launchers


def _check_launcher(job: Job, settings: Settings) -> None:
    if job.launcher == "ranks":
        return
    from echelon.launchers import find_incompatible_pair, reserved_option

    origin = settings.origin("launcher")
    ours = backend(job.scheduler)
    has_srun, mpirun_reaches_nodes = ours.uses_srun(os.environ), ours.mpirun_reaches_nodes
    found = find_incompatible_pair(
        job.launcher, job.environment, has_srun=has_srun, mpirun_reaches_nodes=mpirun_reaches_nodes
    )
    if found is not None:
        place = job.scheduler if job.environment == "bare" else f"{job.scheduler} with {job.environment}"
        raise ConfigError(
            f"launcher {job.launcher} does not work on {place}", origin=origin, why=found.why, hint=found.hint
        )
    taken = reserved_option(job)
    if taken is not None:
        name, setting = taken
        raise ConfigError(
            f"cannot set option --{name} of {job.launcher}",
            origin=settings.origin("launcher_option"),
            why="Echelon sets it",
            hint=setting or "echelon render shows its value",
        )


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set {text} has no value", origin="--set", hint=f"--set {name}=VALUE")
        pairs[name] = value
    return pairs
