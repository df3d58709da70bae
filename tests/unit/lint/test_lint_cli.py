"""`echelon lint` as a user types it: output, formats, choice of rules, exit codes."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from linting import CLEAN, ERROR, WARNING

from echelon.lint.rules import RULES


@pytest.mark.parametrize(
    ("names", "code", "summary"),
    [
        (["error.sh"], 1, "1 error in 1 file"),
        (["warning.sh"], 0, "1 warning in 1 file"),
        (["clean.sh"], 0, "no findings in 1 file"),
        (["error.sh", "warning.sh", "clean.sh"], 1, "1 error, 1 warning in 3 files"),
        (["."], 1, "1 error, 1 warning in 3 files"),
    ],
)
def test_exit_code_and_summary(lint, names, code, summary):
    done = lint(*names)
    assert (done.returncode, done.stderr) == (code, f"echelon: {summary}\n")


def test_text_has_place_rule_practice_fix_and_replacement(lint):
    assert lint("error.sh").stdout == (
        "error.sh:6: error[launcher-on-first-node] torchrun is started on the first of 2\n"
        "    nodes only\n"
        "  practice  The launcher waits for nodes that never connect, or trains on one\n"
        "            node while the others are idle.\n"
        "  fix       srun --ntasks-per-node=1 --kill-on-bad-exit=1 torchrun --nnodes=2 \\\n"
        '              --nproc-per-node=4 --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" \\\n'
        '              --rdzv-endpoint="$MASTER_ADDR:$((10000 + SLURM_JOB_ID % 50000))" \\\n'
        "              train.py\n"
        "\n"
        "error.sh:1: the same job with echelon\n"
        "    echelon run -N 2 -g 4 train.py\n"
    )


def test_every_rule_fits_80_columns(lint):
    for rule in RULES:
        lint.write(f"all/{rule.id}.sh", rule.bad)
    out = lint("all").stdout
    assert out.count(": the same job with echelon") > 20
    assert [line for line in out.splitlines() if len(line) > 80] == []


def test_standard_input_and_markdown(lint):
    lint.write("a.md", f"# Job\n\n```bash\n{ERROR}```\n")
    assert lint("-", text=ERROR).stdout.startswith("<stdin>:6: error[")
    assert lint("a.md").stdout.startswith("a.md:9: error[")


def test_select_and_ignore(lint):
    assert lint("--ignore", "launcher-on-first-node", "error.sh").returncode == 0
    assert lint("--select", "fixed-port,exit-code-lost", "error.sh").returncode == 0
    assert lint("--select", "launcher-on-first-node", "error.sh", "warning.sh").stdout.count("practice") == 1


@pytest.mark.parametrize("flag", ["--select", "--ignore", "--explain"])
def test_unknown_rule_gets_a_suggestion(lint, flag):
    done = lint(flag, "fixd-port", "clean.sh")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: unknown rule 'fixd-port'\n  from  {flag}\n  try   did you mean fixed-port?\n"


@pytest.mark.parametrize(
    "comment",
    [
        "{line}  # echelon: ignore[setup-failure-ignored]",
        "# echelon: ignore[fixed-port, setup-failure-ignored]\n{line}",
        "{line}\n# echelon: ignore-file[setup-failure-ignored]",
    ],
)
def test_comments_ignore_a_rule(lint, comment):
    lint.write("warning.sh", WARNING.replace("module load cuda", comment.format(line="module load cuda")))
    assert lint("warning.sh").stderr == "echelon: no findings in 1 file\n"


def test_comment_above_a_continued_command_ignores_its_lines(lint):
    text = "#!/bin/bash\n#SBATCH -N 2\n# echelon: ignore[fixed-port]\nsrun --kill-on-bad-exit=1 torchrun \\\n  --nnodes 2 \\\n"
    lint.write("a.sh", f"{text}  --master_port 29500 t.py\n")
    assert lint("a.sh").stderr == "echelon: no findings in 1 file\n"


def test_unknown_rule_in_a_comment_is_reported(lint):
    lint.write("a.sh", f"{CLEAN}# echelon: ignore[fixd-port]\n")
    assert "a.sh: unknown rule 'fixd-port' in a comment; did you mean fixed-port?" in lint("a.sh").stderr


def test_json(lint):
    lint.write("bad.bin", "\0")
    answer = json.loads(lint("--json", "error.sh", "bad.bin").stdout)
    assert {name: answer[name] for name in ("version", "files", "errors", "warnings")} == {
        "version": 1,
        "files": 1,
        "errors": 1,
        "warnings": 0,
    }
    [found] = answer["findings"]
    assert found.keys() == {"path", "line", "rule", "severity", "sentence", "practice", "fix"}
    assert (found["path"], found["line"], found["rule"]) == ("error.sh", 6, "launcher-on-first-node")
    assert answer["replacements"] == [
        {"path": "error.sh", "line": 1, "command": "echelon run -N 2 -g 4 train.py", "not_carried_over": []}
    ]
    assert answer["skipped"] == [{"path": "bad.bin", "reason": "a binary file"}]


def test_sarif(lint):
    lint.write("a b.sh", ERROR)
    done = lint("--sarif", "a b.sh", "nope.sh")
    log = json.loads(done.stdout)
    [run] = log["runs"]
    assert (log["version"], done.returncode) == ("2.1.0", 1)
    assert log["$schema"].endswith("/sarif-schema-2.1.0.json")
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [rule.id for rule in RULES]
    [result] = run["results"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "launcher-on-first-node"
    assert result["level"] == "error"
    assert result["locations"] == [
        {"physicalLocation": {"artifactLocation": {"uri": "a%20b.sh"}, "region": {"startLine": 6}}}
    ]
    [note] = run["invocations"][0]["toolExecutionNotifications"]
    assert note["message"] == {"text": "No such file or directory"}


def test_explanation_has_both_examples(lint):
    out = lint("--explain", "exit-code-lost").stdout
    assert out.startswith(
        "exit-code-lost (error)\n\nThe exit code of the training is replaced by that of tee or wait.\n"
    )
    assert "| tee train.log" in out
    assert "set -o pipefail" in out
    assert "# echelon: ignore[exit-code-lost]" in out


def test_all_rules_are_listed(lint):
    assert len(lint("--rules").stdout.splitlines()) == len(RULES)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no files were given"),
        (("--json", "--sarif", "clean.sh"), "--json and --sarif exclude each other"),
        (("--jsn", "clean.sh"), "unknown flag --jsn"),
    ],
)
def test_wrong_usage_is_exit_code_2(lint, argv, message):
    done = lint(*argv)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}\n")


def test_unreadable_files_are_reported_and_skipped(lint):
    lint.write("b.sh", "\0\0")
    done = lint("clean.sh", "b.sh", "nope.sh")
    assert done.returncode == 0
    assert done.stderr.splitlines()[:2] == [
        "echelon: b.sh: a binary file",
        "echelon: nope.sh: No such file or directory",
    ]
    assert lint("nope.sh").returncode == 2


def test_broken_script_has_its_directives_checked(lint):
    lint.write("a.sh", "#!/bin/bash\n#SBATCH --mem=1Go\nif true; then\n")
    done = lint("a.sh")
    assert done.returncode == 1
    assert "not valid bash; only directives were checked" in done.stderr


def test_escape_sequences_of_a_file_do_not_reach_the_terminal(lint):
    lint.write("a.sh", "#!/bin/bash\n#SBATCH -N 1\nmodule load \x1b]0;title\x07x\npython t.py --\x1b[31m\n")
    done = lint("a.sh")
    assert "\x1b" not in done.stdout + done.stderr


def test_missing_parser_error_has_the_command_to_type(lint):
    (lint.folder / "tree_sitter.py").write_text("raise ImportError(name='tree_sitter')\n")
    done = lint("clean.sh", PYTHONPATH=f"{lint.folder}:{lint.env.get('PYTHONPATH', '')}")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: echelon lint needs a parser for bash\n"
        "  why   tree_sitter is not installed\n"
        "  try   pip install 'echelon[lint]'\n"
    )


def colours(lint, **env):
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "echelon", "lint", "error.sh"]
    environ = {**lint.env, "TERM": "xterm", **env}
    process = subprocess.Popen(argv, cwd=lint.folder, env=environ, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    process.wait(60)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    return "\x1b[31m" in text


def test_colour_only_on_a_terminal(lint):
    assert colours(lint)
    assert not colours(lint, NO_COLOR="1")
    assert "\x1b" not in lint("error.sh").stdout


def test_other_commands_do_not_import_the_linter(lint):
    code = "import sys, echelon.cli.ls, echelon.cli.run; print([n for n in sys.modules if 'lint' in n or 'tree_sitter' in n])"
    done = subprocess.run([sys.executable, "-c", code], env=lint.env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_page_of_the_rules_is_that_of_the_table():
    from echelon.lint.formats import rules_page

    page = Path(__file__).parents[3] / "docs" / "lint" / "rules.md"
    assert page.read_text() == rules_page(), "see rules_page in src/echelon/lint/formats.py"
