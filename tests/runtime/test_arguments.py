"""Arguments, variables and secrets reach the ranks unchanged, and secrets are not written to files."""

import json
import os

from running import SCRIPTS, marked_processes

NASTY = [
    "a b",
    "it's",
    '"x"',
    "new\nline",
    "$HOME",
    "`id`",
    "--nodes",
    "5",
    "-N",
    "",
    "ünï→",
    "\\",
    "*",
    "--",
    "-m",
    "#",
    "&;|",
]
SHOW = "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ.get('VALUE'), os.environ.get('HF_TOKEN')]))\n"


def test_arguments_arrive_byte_for_byte(echelon):
    script = echelon.script("show me's.py", SHOW)
    result = echelon("run", "--cold", "-N", "1", script, *NASTY)
    assert result.returncode == 0, result.stderr
    assert json.loads(echelon.only_run().rank_log(0))[0] == NASTY


def test_bytes_that_are_not_text_arrive_too(echelon):
    script = echelon.script("show.py", "import os, sys\nprint(os.fsencode(sys.argv[1]).hex())\n")
    result = echelon("run", "--cold", script, os.fsdecode(b"\xff\xfe"))
    assert result.returncode == 0, result.stderr
    assert echelon.only_run().rank_log(0) == "fffe\n"


def test_a_command_gets_its_arguments_byte_for_byte(echelon):
    echelon.script("show.sh", '#!/bin/sh\nprintf "%s|" "$@"\n').chmod(0o755)
    result = echelon("run", "--", "./show.sh", *NASTY)
    assert result.returncode == 0, result.stderr
    assert echelon.only_run().rank_log(0) == "".join(f"{word}|" for word in NASTY)


def test_variables_arrive_byte_for_byte(echelon):
    script = echelon.script("show.py", SHOW)
    value = "a=b, 'c' \"d\"\n$HOME \\ ünï"
    result = echelon("run", "--cold", "--set", f"VALUE={value}", script)
    assert result.returncode == 0, result.stderr
    assert json.loads(echelon.only_run().rank_log(0))[1] == value


def files_with(folder, text: str) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_secrets_reach_only_the_ranks(echelon):
    script = echelon.script(
        "use.py",
        "import hashlib, os, pathlib, time\n"
        "for name in ('HF_TOKEN', 'WANDB_API_KEY'):\n"
        "    print(name, hashlib.sha256(os.environ[name].encode()).hexdigest()[:8])\n"
        "while not pathlib.Path('seen').exists(): time.sleep(0.01)\n",
    )
    run = echelon.submit("--cold", "--set", "WANDB_API_KEY=swordfish-two", script, env={"HF_TOKEN": "swordfish-one"})
    run.pid_of(0)
    lines = [line for _, line in marked_processes(echelon.mark)]
    assert lines
    assert not any("swordfish" in line for line in lines), "a secret in process arguments"
    (echelon.folder / "seen").touch()
    assert run.wait()["outcome"] == "succeeded"
    assert len(run.rank_log(0).splitlines()) == 2
    assert files_with(run.path, "swordfish") == []
    environ = (run.path / "attempt-0" / "node0.env").read_text()
    assert "HF_TOKEN='********'" in environ
    assert "WANDB_API_KEY='********'" in environ


def test_a_run_with_a_secret_is_resumed_only_with_it(echelon):
    script = echelon.script("show.py", SHOW)
    run = echelon.submit("--cold", "--set", "HF_TOKEN=one", script)
    run.wait()
    refused = echelon("resume", run.id)
    assert refused.returncode == 2
    assert "HF_TOKEN is not set" in refused.stderr
    assert echelon("resume", run.id, env={"HF_TOKEN": "two"}).returncode == 0
    assert json.loads(run.rank_log(0, attempt=1))[2] == "two"


def test_render_and_run_json_have_the_origin_of_values(echelon):
    echelon.script("echelon.toml", "nodes = 2\nrestarts = 1\n")
    explained = echelon(
        "render",
        "--explain",
        "--restarts",
        "3",
        "--set",
        "HF_TOKEN=swordfish",
        SCRIPTS / "steps.py",
        env={"ECHELON_GRACE": "7s"},
    ).stdout
    rows = {line.split()[0]: line for line in explained.splitlines()}
    assert "echelon.toml:1" in rows["nodes"]
    assert "--restarts 3" in rows["restarts"]
    assert "ECHELON_GRACE=7s" in rows["grace"]
    assert rows["cold"].endswith("default")
    assert "swordfish" not in explained


def test_render_starts_nothing_and_works_with_an_empty_path(echelon):
    result = echelon("render", "-N", "2", SCRIPTS / "steps.py", env={"PATH": ""})
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1].startswith("exec ")
    assert not (echelon.folder / "runs").exists()
