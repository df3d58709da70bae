"""Who wins, and how each setting says where it came from."""

import pytest

from echelon.config.sources import (
    Setting,
    default_layer,
    file_layer,
    find_line,
    find_project_file,
    flag_layer,
    load_layers,
    merge_layers,
    user_file,
    variable_layer,
)
from echelon.errors import ConfigError
from echelon.placement import Placement


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def environ(tmp_path):
    return {"HOME": str(tmp_path / "home")}


def user(environ, text):
    path = user_file(environ)
    path.parent.mkdir(parents=True)
    path.write_text(text)


def settled(flags, environ, folder):
    return merge_layers(load_layers(flags, environ, folder))


# Who wins


def test_defaults_apply_without_other_sources(project, environ):
    nodes = settled({}, environ, project)["nodes"]
    assert (nodes.value, nodes.origin) == (1, "default")


def test_each_source_overrides_the_weaker_ones(project, environ):
    user(environ, "nodes = 2")
    assert settled({}, environ, project)["nodes"].value == 2
    (project / "echelon.toml").write_text("nodes = 3")
    assert settled({}, environ, project)["nodes"].value == 3
    environ["ECHELON_NODES"] = "4"
    assert settled({}, environ, project)["nodes"].value == "4"
    assert settled({"nodes": "5"}, environ, project)["nodes"].value == "5"


def test_every_value_has_its_origin(project, environ):
    user(environ, "restarts = 2")
    (project / "echelon.toml").write_text('# mine\n\nname = "gpt"\n')
    environ["ECHELON_TIME"] = "2h"
    found = settled({"nodes": "5"}, environ, project)
    assert found["restarts"].origin == f"{user_file(environ)}:1 (restarts = 2)"
    assert found["name"].origin == f"{project}/echelon.toml:3 (name = 'gpt')"
    assert found["time"].origin == "ECHELON_TIME=2h"
    assert found["nodes"].origin == "--nodes 5"


def test_variables_for_the_ranks_add_up_name_by_name(project, environ):
    user(environ, '[set]\nA = "user"\nB = "user"\n')
    (project / "echelon.toml").write_text('[set]\nB = "project"\nC = "project"\n')
    found = settled({"set": {"C": "flag"}}, environ, project)["set"]
    assert found.value == {"A": "user", "B": "project", "C": "flag"}
    assert found.origin.endswith("--set")
    assert str(project) in found.origin


def test_merging_changes_no_layer():
    below = {"set": Setting(key="set", value={"A": "1"}, origin="below")}
    merge_layers([below, {"set": Setting(key="set", value={"B": "2"}, origin="above")}])
    assert below["set"].value == {"A": "1"}


# Flags


@pytest.mark.parametrize("nothing", [None, False, (), {}])
def test_flag_that_was_not_given_sets_nothing(nothing):
    assert flag_layer({"nodes": nothing, "cpu": nothing, "set": nothing}) == {}


def test_a_switch_is_shown_without_a_value():
    assert flag_layer({"cpu": True})["cpu"].origin == "--cpu"


def test_the_values_of_variables_are_not_shown():
    assert flag_layer({"set": {"HF_TOKEN": "hf_1"}})["set"].origin == "--set"


def test_an_empty_text_is_still_a_value():
    assert flag_layer({"name": ""})["name"].value == ""


# Variables


def test_only_echelon_variables_are_read():
    assert variable_layer({"PATH": "/bin", "NODES": "3", "echelon_nodes": "3"}) == {}


@pytest.mark.parametrize(
    "name", ["ECHELON_RUNS", "ECHELON_DEBUG", "ECHELON_RUN_ID", "ECHELON_NODE_DIR", "ECHELON_ATTEMPT"]
)
def test_internal_variables_are_ignored(name):
    assert variable_layer({name: "x"}) == {}


def test_variables_of_a_rank_are_no_settings():
    place = {"run_id": "r", "attempt": 0, "generation": 0, "node_rank": 0, "nodes": 1, "procs_per_node": 1}
    rendezvous = {"main_address": "n1", "main_port": 1, "store_is_up": True, "max_restarts": 0, "store_key": "key"}
    variables = Placement(**place, **rendezvous, rejected_checkpoint="step-00000020").variables(0)
    assert {"ECHELON_STORE_KEY", "ECHELON_REJECTED_CHECKPOINT"} <= set(variables)
    assert variable_layer(variables) == {}


def test_a_misspelt_variable_is_refused_with_a_guess():
    with pytest.raises(ConfigError) as caught:
        variable_layer({"ECHELON_NODE": "3"})
    assert caught.value.origin == "ECHELON_NODE=3 in the environment"
    assert caught.value.hint == "did you mean ECHELON_NODES?"


def test_a_table_cannot_come_from_a_variable():
    with pytest.raises(ConfigError):
        variable_layer({"ECHELON_SET": "A=1"})


# Files


def written(tmp_path, text):
    path = tmp_path / "echelon.toml"
    path.write_text(text)
    return path


def test_an_unknown_key_is_refused_with_its_line_and_a_guess(tmp_path):
    path = written(tmp_path, "nodes = 2\n\nrestart = 3\n")
    with pytest.raises(ConfigError) as caught:
        file_layer(path)
    assert caught.value.what == "unknown key 'restart'"
    assert caught.value.origin == f"{path}:3"
    assert caught.value.hint == "did you mean restarts?"


def test_an_unknown_table_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="unknown key 'resources'"):
        file_layer(written(tmp_path, "[resources]\nnodes = 2\n"))


@pytest.mark.parametrize("text", ["nodes = ", "nodes 2", "a = 1\na = 2", "[set"])
def test_invalid_toml_is_refused_with_the_parser_error(tmp_path, text):
    with pytest.raises(ConfigError, match="not valid TOML") as caught:
        file_layer(written(tmp_path, text))
    assert caught.value.why


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "echelon.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        file_layer(path)


def test_a_folder_in_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "echelon.toml").mkdir()
    with pytest.raises(ConfigError, match="cannot read"):
        file_layer(tmp_path / "echelon.toml")


def test_an_empty_file_sets_nothing(tmp_path):
    assert file_layer(written(tmp_path, "")) == {}


def test_values_of_variables_are_not_shown(tmp_path):
    assert "hf_1" not in file_layer(written(tmp_path, '[set]\nHF_TOKEN = "hf_1"\n'))["set"].origin


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nodes = 1", 1),
        ("\n\n  nodes=1", 3),
        ('name = "x"\n"nodes" = 1', 2),
        ("# nodes = 3\nnodes = 1", 2),
        ("min_nodes = 1\nnodes = 1", 2),
        ("[nodes]", 1),
        ("x = 1\n[ nodes ]", 2),
        ("x = 1\nnodes.a = 1", 2),
        ("nothing of the kind", 1),
    ],
)
def test_the_line_of_a_key_is_found(text, line):
    assert find_line(text, "nodes") == line


# Where files are looked for


def test_the_nearest_file_above_is_the_projects(project):
    (project / "echelon.toml").write_text("")
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert find_project_file(below) == project / "echelon.toml"
    (below / "echelon.toml").write_text("")
    assert find_project_file(below) == below / "echelon.toml"


def test_files_outside_the_project_are_not_read(project):
    (project.parent / "echelon.toml").write_text("")
    assert find_project_file(project) is None


def test_user_file_is_in_the_xdg_config_folder():
    assert str(user_file({"HOME": "/home/me"})) == "/home/me/.config/echelon/config.toml"
    assert str(user_file({"HOME": "/home/me", "XDG_CONFIG_HOME": "/c"})) == "/c/echelon/config.toml"


def test_defaults_have_the_origin_default():
    assert {setting.origin for setting in default_layer().values()} == {"default"}
