"""Settings to a Job: what is accepted, and how the rest is refused."""

from datetime import timedelta

import pytest

from echelon.config.decode import Machine, Settings, build_job, default_run_name, secret_values
from echelon.config.options import BY_KEY
from echelon.config.parse import decode_setting
from echelon.config.sources import Setting, default_layer, flag_layer, merge_layers
from echelon.errors import ConfigError
from echelon.job import Script, ScriptKind

SCRIPT = Script(kind=ScriptKind.FILE, target="train.py", args=("--lr", "1"))
MACHINE = Machine(cwd="/work", python="/usr/bin/python3")


def settings(**values):
    return Settings(merge_layers([default_layer(), flag_layer(values)]))


def job(machine=MACHINE, script=SCRIPT, **values):
    return build_job(settings(**values), script, machine)


def read(key, value):
    return decode_setting(BY_KEY[key], Setting(key=key, value=value, origin="here"))


@pytest.mark.parametrize(
    ("key", "value", "meaning"),
    [
        ("nodes", 3, 3),
        ("nodes", "3", 3),
        ("nodes", " 3 ", 3),
        ("restarts", "0", 0),
        ("time", "2h", timedelta(hours=2)),
        ("hang_timeout", "off", timedelta(0)),
        ("hang_timeout", "NEVER", timedelta(0)),
        ("hang_timeout", "Auto", None),
        ("hang_timeout", "5m", timedelta(minutes=5)),
        ("name", "gpt", "gpt"),
        ("cpu", True, True),
        ("cpu", "yes", True),
        ("cpu", "TRUE", True),
        ("cpu", "0", False),
        ("cpu", "", False),
        ("on", "local", "local"),
        ("mem", "64G", "64G"),
        ("mem", "64gb", "64G"),
        ("mem", 0, "0"),
        ("mem", "512M", "512M"),
        ("mem", "0", "0"),
        (
            "slurm",
            {"exclusive": "", "nice": 100, "hold": True, "x11": False},
            {"exclusive": "", "nice": "100", "hold": ""},
        ),
        ("set", {"A": "x", "B": 3, "C": True, "D": 1.5}, {"A": "x", "B": "3", "C": "true", "D": "1.5"}),
    ],
)
def test_valid_values_are_decoded(key, value, meaning):
    assert read(key, value) == meaning


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("nodes", "two", "whole number"),
        ("nodes", 2.0, "whole number"),
        ("nodes", "2.0", "whole number"),
        ("nodes", True, "whole number"),
        ("nodes", [], "whole number"),
        ("nodes", 0, "at least 1"),
        ("nodes", "-1", "at least 1"),
        ("restarts", -1, "at least 0"),
        ("time", "soon", "not a duration"),
        ("time", "off", "not a duration"),
        ("time", 0, "not a duration"),
        ("time", -5, "not a duration"),
        ("time", True, "must be a duration"),
        ("time", [1], "must be a duration"),
        ("time", "99999999999d", "not a duration"),
        ("time", "1e15", "not a duration"),
        ("time", "2", "2 seconds, minutes or hours?"),
        ("time", 90, "90 seconds, minutes or hours?"),
        ("grace", 1.5, "1.5 seconds, minutes or hours?"),
        ("hang_timeout", False, "must be a duration"),
        ("name", 3, "text"),
        ("name", "", "text"),
        ("name", "a\nb", "one line"),
        ("partition", "gpu\n#SBATCH --account=x", "one line"),
        ("comment", "\x1b[31m", "one line"),
        ("mem", "lots", "size"),
        ("mem", "1.5G", "size"),
        ("mem", True, "size"),
        ("mem", "-1", "size"),
        ("slurm", "exclusive", "table"),
        ("slurm", {"--exclusive": ""}, "not an option name"),
        ("slurm", {"a b": ""}, "not an option name"),
        ("slurm", {"begin": "now\n"}, "one line"),
        ("slurm", {"begin": ["now"]}, "must be text"),
        ("cpu", "maybe", "true or false"),
        ("cpu", 2, "true or false"),
        ("on", "slurmm", "one of"),
        ("on", 3, "one of"),
        ("on", {}, "one of"),
        ("set", "A=1", "table"),
        ("set", {"1A": "x"}, "not a valid name"),
        ("set", {"A B": "x"}, "not a valid name"),
        ("set", {"": "x"}, "not a valid name"),
        ("set", {"A": ["x"]}, "must be text"),
        ("set", {"RANK": "0"}, "Echelon sets RANK itself"),
        ("set", {"MASTER_ADDR": "n1"}, "Echelon sets MASTER_ADDR itself"),
        ("set", {"SLURM_PROCID": "0"}, "Echelon sets SLURM_PROCID itself"),
        ("set", {"ECHELON_RUN_ID": "x"}, "Echelon sets ECHELON_RUN_ID itself"),
        ("set", {"A": "x\0y"}, "must be text"),
    ],
)
def test_invalid_values_are_refused_with_their_origin(key, value, why):
    with pytest.raises(ConfigError, match=key) as caught:
        read(key, value)
    assert caught.value.origin == "here"
    assert why in caught.value.why
    assert caught.value.hint


def test_a_misspelt_choice_gets_a_guess():
    with pytest.raises(ConfigError) as caught:
        read("on", "locall")
    assert caught.value.hint == "did you mean local?"


def hint_for(key, value):
    with pytest.raises(ConfigError) as caught:
        read(key, value)
    return caught.value.hint


def test_a_number_without_a_unit_gets_likely_units_to_type():
    assert hint_for("time", "2") == "--time 2m or --time 2h"
    assert hint_for("time", 3600) == "--time 3600s or --time 3600m"
    assert hint_for("hang_timeout", "30") == "--hang-timeout 30s or --hang-timeout 30m"
    assert hint_for("mem", "64") == "--mem 64G"


def test_each_type_has_an_example_to_type():
    assert hint_for("time", "soon") == "--time 90s, 15m, 2h or 1:30:00"
    assert hint_for("mem", "lots") == "--mem 64G"
    assert hint_for("nodes", "two") == "--nodes 2"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("WORLD_SIZE", "-N and -g choose"), ("MASTER_PORT", "--ports A-B"), ("MASTER_ADDR", "--interface NAME")],
)
def test_a_variable_of_echelon_names_the_flag_to_use(name, hint):
    assert hint in hint_for("set", {name: "1"})


def test_missing_setting_is_none():
    assert settings().get("time") is None
    assert settings().origin("time") == "default"


# The job


def test_a_job_without_settings_is_one_rank_here():
    plain = job()
    assert (plain.name, plain.script, plain.cwd, plain.python) == ("train", SCRIPT, "/work", "/usr/bin/python3")
    assert (plain.resources.nodes, plain.resources.procs_per_node, plain.resources.gpus_per_node) == (1, 1, 0)
    assert (plain.scheduler, plain.launcher, plain.environment) == ("local", "ranks", "bare")
    assert plain.policies.hang_timeout is None, "it is learned"


@pytest.mark.parametrize(
    ("gpus", "values", "procs"),
    [
        (0, {}, 1),
        (4, {}, 4),
        (0, {"gpus_per_node": "3"}, 3),
        (2, {"gpus_per_node": "2"}, 2),
        (4, {"procs_per_node": "2"}, 2),
        (0, {"gpus_per_node": "4", "procs_per_node": "2"}, 2),
    ],
)
def test_one_rank_per_gpu_by_default(gpus, values, procs):
    machine = Machine(cwd="/", python="py", gpus=gpus)
    resources = job(machine, **values).resources
    assert (resources.procs_per_node, resources.gpus_per_node) == (procs, gpus)


def test_job_depends_only_on_its_arguments():
    assert job(nodes="2", time="2h") == job(nodes="2", time="2h")


def test_secrets_stay_out_of_the_job():
    values = {"set": {"LR": "1", "HF_TOKEN": "hf_1", "A_KEY": "k"}}
    made = job(**values)
    assert made.env == {"LR": "1"}
    assert made.secret_env == ("A_KEY", "HF_TOKEN")
    assert secret_values(settings(**values)) == {"HF_TOKEN": "hf_1", "A_KEY": "k"}
    assert "hf_1" not in repr(made)


def test_min_nodes_above_nodes_is_refused():
    with pytest.raises(ConfigError) as caught:
        job(nodes="2", min_nodes="3")
    assert caught.value.origin == "--min-nodes 3; --nodes 2"


def test_a_default_notice_is_shortened_to_fit_the_limit():
    assert job(time="60s").policies.notice == timedelta(seconds=15)
    assert job(time="61s").policies.notice == timedelta(seconds=60)
    assert job().policies.notice == timedelta(seconds=60)


def test_explicit_notice_longer_than_the_time_is_refused():
    with pytest.raises(ConfigError) as caught:
        job(time="2m", notice="2m")
    assert caught.value.what == "notice is 2m, but the time limit is 2m"
    assert caught.value.hint == "--notice 30s"


@pytest.mark.parametrize("ports", ["x", "0", "9-7", "29500:29599"])
def test_invalid_port_range_is_refused(ports):
    with pytest.raises(ConfigError, match="ports is"):
        job(ports=ports)


def test_ports_keep_their_spelling():
    assert job(ports="29500-29599").ports == "29500-29599"


# Names


@pytest.mark.parametrize("name", ["gpt", "gpt-2", "a.b_c", "7", "x" * 64])
def test_valid_run_names_are_accepted(name):
    assert job(name=name).name == name


@pytest.mark.parametrize("name", ["a b", "a/b", "../x", "-x", ".x", "x" * 65, "\u00fc"])
def test_invalid_run_names_are_refused(name):
    with pytest.raises(ConfigError, match="invalid run name"):
        job(name=name)


@pytest.mark.parametrize(
    ("kind", "target", "name"),
    [
        (ScriptKind.FILE, "train.py", "train"),
        (ScriptKind.FILE, "src/my train.py", "my-train"),
        (ScriptKind.FILE, "train.v2.py", "train.v2"),
        (ScriptKind.FILE, "\u00fc.py", "run"),
        (ScriptKind.FILE, "..", "run"),
        (ScriptKind.FILE, "x" * 100 + ".py", "x" * 40),
        (ScriptKind.MODULE, "pkg.train", "train"),
        (ScriptKind.MODULE, "pkg.__main__", "main"),
        (ScriptKind.COMMAND, "/usr/bin/nvidia-smi", "nvidia-smi"),
    ],
)
def test_a_run_is_named_after_its_script(kind, target, name):
    assert default_run_name(Script(kind=kind, target=target)) == name


@pytest.mark.parametrize("target", ["-.py", "a" * 39 + "-b.py", "a..py", "_x.py", "--help"])
def test_name_from_a_script_is_a_valid_name(target):
    name = default_run_name(Script(kind=ScriptKind.FILE, target=target))
    assert job(name=name).name == name
