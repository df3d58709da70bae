"""What a PBS site's profile makes of the wishes: which numbers are filled in, and which are refused."""

import pytest

from echelon.config.decode import Settings
from echelon.config.layers import SITES, Setting, all_layers, file_layer, merged, site_layer, user_file
from echelon.errors import ConfigError
from echelon.schedulers import pbs

NATIVE_OF_OURS = ["select", "ncpus", "ngpus", "mem", "walltime", "nodes", "W.depend", *"NqPMmojkrSvVWlJI"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def wishes(tmp_path, site="gadi", **flags):
    environ = {"HOME": str(tmp_path), **({"ECHELON_SITE": site} if site else {})}
    return Settings(merged(all_layers(flags, environ, tmp_path)))


def fitted(tmp_path, **flags):
    settings = wishes(tmp_path, **flags)
    return {key: one.value for key, one in pbs.fit(settings, {}).found.items()}


@pytest.mark.parametrize(
    ("queue", "nodes", "gpus", "cpus", "mem"),
    [
        ("gpuvolta", 1, 1, 12, "95G"),
        ("gpuvolta", 1, 2, 24, "191G"),
        ("gpuvolta", 1, 4, 48, "382G"),
        ("gpuvolta", 2, 4, 48, "382G"),
        ("gpuvolta", 16, 4, 48, "382G"),
        ("dgxa100", 1, 8, 128, "2000G"),
        ("dgxa100", 1, 1, 16, "250G"),
        ("normal", 1, None, 48, "190G"),
        ("normal", 3, None, 48, "190G"),
        ("normalbw", 2, None, 28, "128G"),
    ],
)
def test_cpus_and_memory_go_with_the_gpus(tmp_path, queue, nodes, gpus, cpus, mem):
    assert fitted(tmp_path, partition=queue, nodes=nodes, gpus_per_node=gpus) == {"cpus": cpus, "mem": mem}


def test_what_was_asked_for_is_left_alone(tmp_path):
    assert fitted(tmp_path, partition="gpuvolta", gpus_per_node=2, cpus=24, mem="10G") == {}
    assert fitted(tmp_path, site=None, partition="any") == {}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"partition": "gpuvolta", "gpus_per_node": 8}, "nodes of gpuvolta have 4"),
        ({"partition": "gpuvolta"}, "a queue for GPUs"),
        ({"partition": "normal", "gpus_per_node": 1}, "nodes of normal have 0"),
        ({"partition": "gpuvolta", "gpus_per_node": 2, "nodes": 2}, "are not 2 nodes here"),
        ({"partition": "gpuvolta", "gpus_per_node": 4, "nodes": 2, "cpus": 24}, "are not 2 nodes here"),
        ({"partition": "normal", "nodes": 2, "cpus": 24}, "are not 2 nodes here"),
        ({"partition": "gpuvolta", "gpus_per_node": 1, "spare_nodes": 1}, "are not 2 nodes here"),
        ({"partition": "gpuvolta", "gpus_per_node": 2, "cpus": 12}, "12 CPUs do not go with 2 GPUs"),
        ({"partition": "gpuvolta", "gpus_per_node": 4, "cpus": 96}, "but there are 48"),
        ({"partition": "copyq"}, "how many CPUs a node is asked for is not known"),
        ({}, "how many CPUs a node is asked for is not known"),
        ({"partition": "normal", "mem": "0"}, "no word for all the memory"),
        ({"partition": "normal", "pbs": {"chunk.x": "1"}}, "belongs to a chunk"),
    ],
)
def test_what_would_not_come_out_as_meant_is_refused(tmp_path, flags, words):
    with pytest.raises(ConfigError, match=words) as caught:
        fitted(tmp_path, **flags)
    assert caught.value.origin
    assert caught.value.hint


def test_without_a_known_queue_the_cpus_that_are_given_do(tmp_path):
    assert fitted(tmp_path, partition="copyq", cpus=1) == {}


def test_a_gpu_queue_can_still_be_used_by_chunks_of_any_size(tmp_path):
    flags = {"partition": "gpuvolta", "gpus_per_node": 2, "nodes": 2, "cpus": 10, "pbs_dialect": "chunks"}
    assert fitted(tmp_path, **flags) == {"mem": "382G"}


@pytest.mark.parametrize("name", NATIVE_OF_OURS)
def test_what_echelon_sets_itself_cannot_be_set_otherwise(tmp_path, name):
    with pytest.raises(ConfigError, match="set by echelon itself"):
        fitted(tmp_path, site=None, pbs={name: "x"})


@pytest.mark.parametrize("name", ["storage", "place", "W.umask", "chunk.gpu_model", "a", "jobfs", "software"])
def test_anything_else_goes_along(tmp_path, name):
    assert fitted(tmp_path, site=None, pbs={name: "x"}) == {}


@pytest.mark.parametrize("name", ["", "a b", "W.", "x.y", "-l", "a=b", "1"])
def test_what_is_no_name_is_refused(tmp_path, name):
    with pytest.raises(ConfigError):
        wishes(tmp_path, site=None, pbs={name: "x"}).get("pbs")


# The layer of the site


@pytest.mark.parametrize("path", sorted(SITES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_profile_can_be_read(path):
    layer = file_layer(path)
    settings = Settings(layer)
    assert all(settings.get(key) is not None for key in layer)


def test_a_site_is_weaker_than_everything_but_the_defaults(tmp_path):
    site = tmp_path / "mine.toml"
    site.write_text('on = "pbs"\npartition = "site"\naccount = "site"\nqos = "site"\nname = "site"\nnotice = "5m"\n')
    environ = {"HOME": str(tmp_path), "ECHELON_SITE": str(site), "ECHELON_QOS": "variable"}
    user_file(environ).parent.mkdir(parents=True)
    user_file(environ).write_text('partition = "user"\naccount = "user"\n')
    (tmp_path / "echelon.toml").write_text('account = "project"\n')
    settled = merged(all_layers({"name": "flag"}, environ, tmp_path))
    values = {key: settled[key].value for key in ("notice", "partition", "account", "qos", "name", "grace")}
    assert values == {
        "notice": "5m", "partition": "user", "account": "project", "qos": "variable", "name": "flag", "grace": "5s",
    }  # fmt: skip
    assert settled["notice"].origin.startswith(f"{site}:6")


def test_options_of_site_and_project_add_up(tmp_path):
    (tmp_path / "echelon.toml").write_text('site = "gadi"\n[pbs]\nstorage = "gdata/ab12"\n')
    settings = wishes(tmp_path, site=None, pbs={"jobfs": "1GB"})
    assert settings.get("pbs") == {"wd": "", "storage": "gdata/ab12", "jobfs": "1GB"}


def test_the_flag_names_the_site_over_the_variable(tmp_path):
    with pytest.raises(ConfigError, match="'nowhere'") as caught:
        all_layers({"site": "nowhere"}, {"HOME": str(tmp_path), "ECHELON_SITE": "gadi"}, tmp_path)
    assert caught.value.origin == "--site nowhere"
    assert "gadi" in caught.value.why


def test_a_misspelt_site_is_guessed():
    with pytest.raises(ConfigError) as caught:
        site_layer("gady", "--site gady")
    assert "did you mean gadi?" in caught.value.hint


def test_a_profile_cannot_name_another(tmp_path):
    (tmp_path / "a.toml").write_text('site = "gadi"\n')
    with pytest.raises(ConfigError, match="cannot name another"):
        site_layer(str(tmp_path / "a.toml"), "here")


@pytest.mark.parametrize(
    "value", [1, {"a": 1}, {"a": {"cores": 1}}, {"a": {"cpus": "48"}}, {"a": {"cpus": 0}}, {"a": {"cpus": True}}]
)
def test_queues_that_make_no_sense_are_refused(value):
    with pytest.raises(ConfigError):
        Settings({"queues": Setting(key="queues", value=value, origin="here")}).get("queues")
