"""Settings resolved with a PBS site profile: derived values and refused requests."""

import pytest

from echelon.backends.pbs import control
from echelon.config.decode import Settings
from echelon.config.sources import SITES, Setting, file_layer, load_layers, merge_layers, site_layer, user_file
from echelon.errors import ConfigError

NATIVE_OF_OURS = ["select", "ncpus", "ngpus", "mem", "walltime", "nodes", "W.depend", *"NqPMmojkrSvVWlJI"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def settings(tmp_path, site="gadi", **flags):
    environ = {"HOME": str(tmp_path), **({"ECHELON_SITE": site} if site else {})}
    return Settings(merge_layers(load_layers(flags, environ, tmp_path)))


def fitted(tmp_path, **flags):
    merged = settings(tmp_path, **flags)
    return {key: one.value for key, one in control.resolve(merged, {}).values.items()}


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
def test_cpus_and_memory_are_proportional_to_gpus(tmp_path, queue, nodes, gpus, cpus, mem):
    assert fitted(tmp_path, partition=queue, nodes=nodes, gpus_per_node=gpus) == {"cpus": cpus, "mem": mem}


def test_given_values_are_unchanged(tmp_path):
    assert fitted(tmp_path, partition="gpuvolta", gpus_per_node=2, cpus=24, mem="10G") == {}
    assert fitted(tmp_path, site=None, partition="any") == {}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"partition": "gpuvolta", "gpus_per_node": 8}, "nodes of gpuvolta have 4"),
        ({"partition": "gpuvolta"}, "a GPU queue"),
        ({"partition": "normal", "gpus_per_node": 1}, "nodes of normal have 0"),
        ({"partition": "gpuvolta", "gpus_per_node": 2, "nodes": 2}, "do not fill 2 nodes"),
        ({"partition": "gpuvolta", "gpus_per_node": 4, "nodes": 2, "cpus": 24}, "do not fill 2 nodes"),
        ({"partition": "normal", "nodes": 2, "cpus": 24}, "do not fill 2 nodes"),
        ({"partition": "gpuvolta", "gpus_per_node": 1, "spare_nodes": 1}, "do not fill 2 nodes"),
        ({"partition": "gpuvolta", "gpus_per_node": 2, "cpus": 12}, "12 CPUs do not match 2 GPUs"),
        ({"partition": "gpuvolta", "gpus_per_node": 4, "cpus": 96}, "but nodes have 48"),
        ({"partition": "copyq"}, "the number of CPUs per node is unknown"),
        ({}, "the number of CPUs per node is unknown"),
        ({"partition": "normal", "mem": "0"}, "no option for all the memory"),
        ({"partition": "normal", "pbs": {"chunk.x": "1"}}, "is a resource of a chunk"),
    ],
)
def test_requests_the_site_would_change_are_refused(tmp_path, flags, words):
    with pytest.raises(ConfigError, match=words) as caught:
        fitted(tmp_path, **flags)
    assert caught.value.origin
    assert caught.value.hint


def test_given_cpus_suffice_without_a_known_queue(tmp_path):
    assert fitted(tmp_path, partition="copyq", cpus=1) == {}


def test_chunks_of_any_size_fit_a_gpu_queue(tmp_path):
    flags = {"partition": "gpuvolta", "gpus_per_node": 2, "nodes": 2, "cpus": 10, "pbs_dialect": "chunks"}
    assert fitted(tmp_path, **flags) == {"mem": "382G"}


@pytest.mark.parametrize("name", NATIVE_OF_OURS)
def test_reserved_options_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="set by echelon itself"):
        fitted(tmp_path, site=None, pbs={name: "x"})


@pytest.mark.parametrize("name", ["storage", "place", "W.umask", "chunk.gpu_model", "a", "jobfs", "software"])
def test_other_native_options_are_accepted(tmp_path, name):
    assert fitted(tmp_path, site=None, pbs={name: "x"}) == {}


@pytest.mark.parametrize("name", ["", "a b", "W.", "x.y", "-l", "a=b", "1"])
def test_invalid_option_names_are_refused(tmp_path, name):
    with pytest.raises(ConfigError):
        settings(tmp_path, site=None, pbs={name: "x"}).get("pbs")


# The layer of the site


@pytest.mark.parametrize("path", sorted(SITES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_profile_can_be_read(path):
    layer = file_layer(path)
    settings = Settings(layer)
    assert all(settings.get(key) is not None for key in layer)


def test_site_profile_overrides_only_defaults(tmp_path):
    site = tmp_path / "mine.toml"
    site.write_text('on = "pbs"\npartition = "site"\naccount = "site"\nqos = "site"\nname = "site"\nnotice = "5m"\n')
    environ = {"HOME": str(tmp_path), "ECHELON_SITE": str(site), "ECHELON_QOS": "variable"}
    user_file(environ).parent.mkdir(parents=True)
    user_file(environ).write_text('partition = "user"\naccount = "user"\n')
    (tmp_path / "echelon.toml").write_text('account = "project"\n')
    settled = merge_layers(load_layers({"name": "flag"}, environ, tmp_path))
    values = {key: settled[key].value for key in ("notice", "partition", "account", "qos", "name", "grace")}
    assert values == {
        "notice": "5m",
        "partition": "user",
        "account": "project",
        "qos": "variable",
        "name": "flag",
        "grace": "5s",
    }
    assert settled["notice"].origin.startswith(f"{site}:6")


def test_options_of_site_and_project_add_up(tmp_path):
    (tmp_path / "echelon.toml").write_text('site = "gadi"\n[pbs]\nstorage = "gdata/ab12"\n')
    merged = settings(tmp_path, site=None, pbs={"jobfs": "1GB"})
    assert merged.get("pbs") == {"wd": "", "storage": "gdata/ab12", "jobfs": "1GB"}


def test_site_flag_overrides_site_variable(tmp_path):
    with pytest.raises(ConfigError, match="'nowhere'") as caught:
        load_layers({"site": "nowhere"}, {"HOME": str(tmp_path), "ECHELON_SITE": "gadi"}, tmp_path)
    assert caught.value.origin == "--site nowhere"
    assert "available: gadi" in caught.value.what


def test_misspelt_site_has_a_suggestion():
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
def test_invalid_queue_tables_are_refused(value):
    with pytest.raises(ConfigError):
        Settings({"queues": Setting(key="queues", value=value, origin="here")}).get("queues")
