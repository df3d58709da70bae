"""The example for Gadi: its job script, and the same training rehearsed here."""

import re
import shlex
import shutil
import sys

import pytest
from readme import EXAMPLES, first_command


@pytest.fixture
def gadi(tmp_path):
    """A copy, so that its runs are not left among the examples."""
    for name in ("gadi", "trainer"):
        shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    return tmp_path / "gadi"


def test_two_nodes_request_their_totals(echelon, gadi):
    del echelon.env["ECHELON_ON"]
    result = echelon("render", "../trainer/train.py", cwd=gadi, env={"PATH": "/nonexistent"})
    assert result.returncode == 0, result.stderr
    asked = re.findall(r"^#PBS -[qPl] (.*)$", result.stdout, re.MULTILINE)
    assert asked == [
        "gpuvolta",
        "ab12",
        "ncpus=96",
        "ngpus=8",
        "mem=764gb",
        "walltime=02:00:00",
        "wd",
        "storage=gdata/ab12+scratch/ab12",
    ]


def test_resources_that_do_not_fit_two_nodes_are_refused(echelon, gadi):
    del echelon.env["ECHELON_ON"]
    result = echelon("render", "-g", "2", "../trainer/train.py", cwd=gadi)
    assert result.returncode == 2
    assert "2 x 48 CPUs and 2 GPUs do not fill 2 nodes" in result.stderr


def test_group_name_selects_the_hosts_of_the_table(echelon, gadi):
    result = echelon("render", "--on", "ssh", "--hosts", "pair", "../trainer/train.py", cwd=gadi)
    assert "2 of the hosts gpu1, gpu2, 4 ranks on each" in result.stdout


def test_commented_modules_and_venv_can_be_enabled(echelon, gadi):
    settings = gadi / "echelon.toml"
    text = re.sub(r"^# (modules|venv) = ", r"\1 = ", settings.read_text(), flags=re.MULTILINE)
    settings.write_text(text.replace("/g/data/ab12/venv", sys.prefix))
    result = echelon("render", "--on", "pbs", "../trainer/train.py", cwd=gadi)
    assert result.returncode == 0, result.stderr
    assert "\nload cuda/12.4\n" in result.stdout
    assert f"\nexport VIRTUAL_ENV={shlex.quote(sys.prefix)}\n" in result.stdout


@pytest.mark.torch
def test_the_same_settings_rehearsed_on_this_machine(echelon, gadi):
    del echelon.env["ECHELON_ON"]
    result = echelon(*first_command("gadi"), "--steps", "51", cwd=gadi)
    assert result.returncode == 0, result.stderr + result.stdout
    assert "no effect with backend local: partition, account, pbs_dialect, pbs, queues" in result.stderr
    losses = [float(loss) for loss in re.findall(r"  loss (\S+)", result.stdout)]
    assert losses[0] > 3
    assert losses[1] < 1
