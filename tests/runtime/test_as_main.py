"""A rank runs its script as `python script` would: forked from the starter, or in a new interpreter with --cold."""

import json
import subprocess
import sys

import pytest

from running import SCRIPTS

WAYS = pytest.mark.parametrize(
    "way", [pytest.param((), marks=pytest.mark.torch, id="warm"), pytest.param(("--cold",), id="cold")]
)


def plain_python(echelon, *args) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *args],
        cwd=echelon.folder,
        env=echelon.env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def facts_in(text: str) -> dict:
    return json.loads(next(line for line in text.splitlines() if line.startswith("{")))


@WAYS
def test_script_has_the_same_globals_as_in_python(echelon, way):
    folder = echelon.folder / "my project"
    folder.mkdir()
    script = folder / "facts.py"
    script.write_text((SCRIPTS / "facts.py").read_text())
    args = ("my project/facts.py", "--lr", "1e-4", "", "a b")
    ours = echelon("run", *way, *args)
    assert ours.returncode == 0, ours.stderr + ours.stdout
    log = echelon.only_run().rank_log(0)
    assert facts_in(log) == facts_in(plain_python(echelon, *args).stdout)
    assert log.endswith("atexit ran\n")
    assert "thread ran\n" in log


@WAYS
def test_module_has_the_same_globals_as_in_python(echelon, way):
    package = echelon.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text((SCRIPTS / "facts.py").read_text())
    ours = echelon("run", *way, "-m", "package.inner", "-x", "--nodes", "5")
    assert ours.returncode == 0, ours.stderr + ours.stdout
    theirs = facts_in(plain_python(echelon, "-m", "package.inner", "-x", "--nodes", "5").stdout)
    mine = facts_in(echelon.only_run().rank_log(0))
    assert mine.pop("spec").partition(" loader")[0] == theirs.pop("spec").partition(" loader")[0]
    assert mine == theirs


ENDINGS = {
    "off the end": "print('x')",
    "sys.exit()": "import sys; sys.exit()",
    "sys.exit(3)": "import sys; sys.exit(3)",
    "sys.exit(text)": "import sys; sys.exit('a reason')",
    "sys.exit(300)": "import sys; sys.exit(300)",
    "os._exit": "import os; os._exit(9)",
    "exception": "def f():\n    raise KeyError('k')\nf()",
    "chained": "try:\n    1 / 0\nexcept Exception as e:\n    raise ValueError('v') from e",
    "syntax error": "x = = 1",
    "own excepthook": "import sys\nsys.excepthook = lambda t, v, tb: print('hook', t.__name__, tb.tb_lineno)\nint('x')",
    "abort": "import os; os.abort()",
    "interrupt": "raise KeyboardInterrupt",
    "failing atexit": "import atexit, sys\natexit.register(lambda: print('bye'))\nsys.exit(4)",
    "closed stdout": "import os, sys\nprint('x')\nos.close(1)",
}


def check_ending(echelon, ending, way):
    script = echelon.script("end.py", ENDINGS[ending] + "\n")
    theirs = plain_python(echelon, "end.py")
    ours = echelon("run", *way, script.name)
    expected = theirs.returncode if theirs.returncode >= 0 else 128 - theirs.returncode
    assert ours.returncode == expected, ours.stderr
    log = echelon.only_run().rank_log(0)
    assert sorted(log.splitlines()) == sorted((theirs.stdout + theirs.stderr).splitlines())


@pytest.mark.parametrize("ending", ENDINGS)
def test_cold_rank_exits_like_python(echelon, ending):
    check_ending(echelon, ending, ("--cold",))


@pytest.mark.torch
@pytest.mark.parametrize("ending", ["sys.exit(text)", "chained", "own excepthook", "abort", "failing atexit"])
def test_warm_rank_exits_like_python(echelon, ending):
    check_ending(echelon, ending, ())


@pytest.mark.torch
def test_warm_ranks_do_not_share_random_numbers(echelon):
    script = echelon.script(
        "dice.py",
        "import random, torch, numpy, uuid\n"
        "print(random.random(), torch.rand(1).item(), numpy.random.rand(), uuid.uuid4())\n",
    )
    assert echelon("run", "-g", "3", script).returncode == 0
    rolls = [echelon.only_run().rank_log(rank).split() for rank in range(3)]
    assert [len(set(column)) for column in zip(*rolls, strict=True)] == [3, 3, 3, 3]


@pytest.mark.torch
def test_data_loader_workers_and_openmp_work_in_a_warm_rank(echelon):
    script = echelon.script(
        "load.py",
        "import torch\nfrom torch.utils.data import DataLoader\n"
        "if __name__ == '__main__':\n"
        "    torch.set_num_threads(2)\n"
        "    print('matmul', float((torch.ones(400, 400) @ torch.ones(400, 400)).sum()))\n"
        "    for context in ('fork', 'spawn'):\n"
        "        loader = DataLoader(torch.arange(8.0), batch_size=2, num_workers=2, multiprocessing_context=context)\n"
        "        print(context, sum(float(batch.sum()) for batch in loader))\n",
    )
    result = echelon("run", "-g", "2", script)
    assert result.returncode == 0, result.stdout + result.stderr
    assert echelon.only_run().rank_log(1) == "matmul 64000000.0\nfork 28.0\nspawn 28.0\n"


def test_a_command_that_is_not_python(echelon):
    echelon.script("go.sh", '#!/bin/sh\necho "rank $RANK of $WORLD_SIZE: $1"\nexit 7\n').chmod(0o755)
    result = echelon("run", "--", "./go.sh", "a  b")
    assert result.returncode == 7
    assert echelon.only_run().rank_log(0) == "rank 0 of 1: a  b\n"


def test_missing_command_or_module_creates_no_run(echelon):
    for words in (("--", "./nothing"), ("-m", "no.such.module")):
        result = echelon("run", *words)
        assert result.returncode == 2
        assert result.stderr.startswith(f"error: no {'command' if words[0] == '--' else 'module'} {words[1]}")
    assert not (echelon.folder / "runs").exists()


def test_command_missing_on_the_node_exits_with_127(echelon):
    result = echelon("run", "--setup", "true", "--", "./nothing")
    assert result.returncode == 127
    assert "cannot run ./nothing: No such file or directory" in result.stdout


def test_ranks_keep_the_umask_and_the_run_directory_is_private(echelon):
    script = echelon.script("mask.py", "import os\nopen('made', 'w').close()\n")
    assert echelon("run", "--cold", script, umask=0o027).returncode == 0
    assert (echelon.folder / "made").stat().st_mode & 0o777 == 0o640
    run = echelon.only_run().path
    assert run.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in run.rglob("*"))
