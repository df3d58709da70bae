"""`echelon init`: a file that says something sensible once its comments are taken away."""

import re
import subprocess
import sys

import pytest

from echelon.cli.init import settings_template
from echelon.config.options import BY_KEY
from echelon.config.parse import decode_setting
from echelon.config.sources import file_layer


def uncommented():
    return re.sub(r"^# (?=\w+ = |\[)", "", settings_template(), flags=re.MULTILINE)


@pytest.fixture
def layer(tmp_path):
    path = tmp_path / "echelon.toml"
    path.write_text(uncommented())
    return file_layer(path)


def test_template_sets_nothing_as_written(tmp_path):
    path = tmp_path / "echelon.toml"
    path.write_text(settings_template())
    assert file_layer(path) == {}


def test_uncommented_template_sets_every_setting_once(layer):
    assert set(layer) == set(BY_KEY)


@pytest.mark.parametrize("key", BY_KEY)
def test_every_value_in_the_template_is_valid(layer, key):
    decode_setting(BY_KEY[key], layer[key])


@pytest.mark.parametrize("key", [key for key, option in BY_KEY.items() if option.default is not None])
def test_defaults_are_shown_as_they_are(layer, key):
    assert layer[key].value == BY_KEY[key].default


def test_every_setting_is_explained():
    for option in BY_KEY.values():
        assert f"# {option.help}" in settings_template().splitlines()


def init(folder):
    return subprocess.run(
        [sys.executable, "-m", "echelon", "init"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_file_is_written_and_never_overwritten(tmp_path):
    first = init(tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "echelon: wrote echelon.toml\n")
    assert (tmp_path / "echelon.toml").read_text() == settings_template()
    (tmp_path / "echelon.toml").write_text("nodes = 2\n")
    second = init(tmp_path)
    assert second.returncode == 2
    assert second.stderr.startswith("error: echelon.toml already exists")
    assert (tmp_path / "echelon.toml").read_text() == "nodes = 2\n"
