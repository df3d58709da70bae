"""`--on ssh`: hosts, ranks per host, and the job script."""

import sys
from pathlib import Path

import pytest

from echelon.backends.ssh import control
from echelon.config.decode import Settings
from echelon.config.sources import Setting, default_layer, flag_layer, load_layers, merge_layers
from echelon.errors import ConfigError
from echelon.job import Job, Resources, Script, ScriptKind
from echelon.run_dir import RunDir

GOLDEN = Path(__file__).parents[2] / "golden"


def fit(**flags):
    return control.resolve(Settings(merge_layers([default_layer(), flag_layer({"on": "ssh", **flags})])), {})


def found(fit):
    return {key: one.value for key, one in fit.values.items()}


def test_every_listed_host_is_a_node():
    made = fit(hosts="gpu[1-3],big")
    assert made.hosts == ("gpu1", "gpu2", "gpu3", "big")
    assert found(made) == {"nodes": 4, "python": "python3"}
    assert made.gpus_per_node == 0


def test_hosts_beyond_nodes_and_spares_are_unused():
    assert fit(hosts="a,b,c,d", nodes=2, spare_nodes=1).hosts == ("a", "b", "c")
    assert found(fit(hosts="a,b,c", spare_nodes=1))["nodes"] == 2


@pytest.mark.parametrize("flags", [{"nodes": 3}, {"nodes": 2, "spare_nodes": 1}, {"spare_nodes": 2}])
def test_more_nodes_than_hosts_are_refused(flags):
    with pytest.raises(ConfigError, match="but 2 listed"):
        fit(hosts="a,b", **flags)


@pytest.fixture
def hostfile(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("a slots=4\nb slots=2 # smaller\n")
    return str(path)


def test_slots_limit_the_ranks_per_host(hostfile):
    made = fit(hostfile=hostfile)
    assert (made.hosts, made.gpus_per_node, found(made)["gpus_per_node"]) == (("a", "b"), 2, 2)
    assert found(fit(hostfile=hostfile, cpu=True))["procs_per_node"] == 2
    assert "gpus_per_node" not in found(fit(hostfile=hostfile, gpus_per_node=1))
    assert fit(hostfile=hostfile, gpus_per_node=1, cpu=True).gpus_per_node == 0
    with pytest.raises(ConfigError, match="b has 2 slots"):
        fit(hostfile=hostfile, gpus_per_node=4)


def test_invalid_hostfile_error_has_the_line(tmp_path, hostfile):
    (tmp_path / "bad").write_text("a\nb slots=x\n")
    with pytest.raises(ConfigError) as caught:
        fit(hostfile=str(tmp_path / "bad"))
    assert caught.value.origin.startswith(f"{tmp_path}/bad:2: ")
    with pytest.raises(ConfigError, match="cannot read"):
        fit(hostfile=str(tmp_path / "none"))
    (tmp_path / "empty").write_text("# nobody\n")
    with pytest.raises(ConfigError, match="no host in"):
        fit(hostfile=str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="both"):
        fit(hosts="a", hostfile=hostfile)


def test_missing_hosts_error_has_a_hint():
    with pytest.raises(ConfigError, match="no hosts given") as caught:
        fit()
    assert "--hosts" in caught.value.hint


@pytest.mark.parametrize("hosts", ["-oProxyCommand=x", "a/b", "a,a", "a b"])
def test_invalid_host_error_has_its_origin(hosts):
    with pytest.raises(ConfigError) as caught:
        fit(hosts=hosts)
    assert caught.value.origin == f"--hosts {hosts}"


def settled(folder, text, flags, home):
    (folder / "echelon.toml").write_text(text)
    layers = load_layers({"on": "ssh", **flags}, {"HOME": str(home)}, folder)
    return Settings(merge_layers(layers))


def test_flag_selects_a_group_of_the_file(tmp_path):
    text = '[hosts]\nlab = ["gpu[1-2]", "big"]\nother = "x,y"\n'
    assert control.resolve(settled(tmp_path, text, {"hosts": "lab"}, tmp_path), {}).hosts == ("gpu1", "gpu2", "big")
    assert control.resolve(settled(tmp_path, text, {"hosts": "other,z"}, tmp_path), {}).hosts == ("x", "y", "z")
    with pytest.raises(ConfigError) as caught:
        control.resolve(settled(tmp_path, text, {}, tmp_path), {})
    assert "lab, other" in caught.value.why


def test_groups_of_the_users_file_add_to_the_projects(tmp_path):
    user = tmp_path / ".config" / "echelon"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('[hosts]\nlab = ["l1"]\nhome = ["m1"]\n')
    settings = settled(tmp_path, '[hosts]\nlab = ["p1"]\n', {"hosts": "lab,home"}, tmp_path)
    assert control.resolve(settings, {}).hosts == ("p1", "m1")


def test_file_can_select_hosts(tmp_path):
    assert control.resolve(settled(tmp_path, 'hosts = "a,b"\n', {}, tmp_path), {}).hosts == ("a", "b")
    assert control.resolve(settled(tmp_path, 'hosts = ["a", "b"]\n', {}, tmp_path), {}).hosts == ("a", "b")
    assert control.resolve(settled(tmp_path, 'hosts = "a,b"\n', {"hosts": "c"}, tmp_path), {}).hosts == ("c",)


@pytest.mark.parametrize("value", [3, [], [1], {"lab": 3}, {"lab": []}, "a\nb"])
def test_invalid_host_settings_are_refused(value):
    settings = Settings({"hosts": Setting(key="hosts", value=value, origin="echelon.toml:1")})
    with pytest.raises(ConfigError) as caught:
        settings.get("hosts")
    assert caught.value.origin == "echelon.toml:1"


def test_supervisor_uses_the_local_python(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/home/ada/tools/bin/python")
    job = Job(
        name="gpt",
        script=Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1e-4")),
        cwd="/home/ada/gpt",
        python="/opt/torch/bin/python",
        resources=Resources(nodes=2, spare_nodes=1, procs_per_node=4),
        scheduler="ssh",
        hosts=("gpu1", "gpu2", "gpu3"),
    )
    rendered = control.render(job, RunDir(Path("/home/ada/gpt/runs/gpt-20260115-101500-7f3a")))
    assert rendered == (GOLDEN / "ssh.sh").read_text()
    assert control.submission_summary(job, "1 2") == "over ssh on gpu1, gpu2, gpu3"
