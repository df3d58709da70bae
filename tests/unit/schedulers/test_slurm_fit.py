"""What Slurm, an allocation and this machine make of the same wishes."""

import pytest

from echelon.config.decode import Settings
from echelon.config.layers import default_layer, flag_layer, merged
from echelon.errors import ConfigError, EnvironmentProblem
from echelon.schedulers import allocation, local, slurm

ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-4]"}


def wishes(**values):
    return Settings(merged([default_layer(), flag_layer(values)]))


# Slurm


@pytest.mark.parametrize(
    ("values", "gpus"),
    [({}, 0), ({"gpus_per_node": "8"}, 8), ({"gpus_per_node": "8", "cpu": True}, 0), ({"procs_per_node": "4"}, 0)],
)
def test_slurm_is_asked_for_the_gpus_that_were_asked_for(values, gpus):
    assert slurm.fit(wishes(**values), {}).gpus_per_node == gpus


@pytest.mark.parametrize(
    ("name", "flag"), [("nodes", "--nodes"), ("time", "--time"), ("mail-user", "--mail"), ("signal", "--notice")]
)
def test_an_option_of_sbatch_that_has_a_setting_is_refused_with_its_name(name, flag):
    with pytest.raises(ConfigError, match=f"--{name} is set by echelon itself") as caught:
        slurm.fit(wishes(slurm={name: "3"}), {})
    assert (caught.value.origin, caught.value.hint) == ("--slurm", flag)


def test_an_option_of_sbatch_that_is_ours_alone_is_refused():
    with pytest.raises(ConfigError) as caught:
        slurm.fit(wishes(slurm={"output": "/dev/null"}), {})
    assert "echelon render" in caught.value.hint


@pytest.mark.parametrize("gres", ["gpu:4", "gpu", "nvme:1,gpu:a100:2"])
def test_gpus_that_echelon_would_not_know_of_are_refused(gres):
    with pytest.raises(ConfigError) as caught:
        slurm.fit(wishes(slurm={"gres": gres}), {})
    assert "--gpus-per-node" in caught.value.hint


@pytest.mark.parametrize("name", ["exclusive", "gres", "switches", "container-image", "nice"])
def test_any_other_option_of_sbatch_is_fine(name):
    slurm.fit(wishes(slurm={name: "x"}), {})


def test_defaults_that_were_meant_for_sbatch_count_and_say_where_they_are_from():
    found = slurm.fit(wishes(), {"SBATCH_ACCOUNT": "nlp", "SBATCH_PARTITION": "", "SBATCH_TIMELIMIT": "5"}).found
    assert {key: (one.value, one.origin) for key, one in found.items()} == {"account": ("nlp", "SBATCH_ACCOUNT=nlp")}


# An allocation


@pytest.mark.parametrize(
    ("values", "nodes"),
    [({}, 4), ({"spare_nodes": "1"}, 3), ({"nodes": "2"}, 2), ({"nodes": "3", "spare_nodes": "1"}, 3)],
)
def test_all_nodes_of_the_allocation_are_used_unless_fewer_are_asked_for(values, nodes):
    assert allocation.fit(wishes(**values), ALLOCATION).found["nodes"].value == nodes


@pytest.mark.parametrize("values", [{"nodes": "5"}, {"nodes": "4", "spare_nodes": "1"}, {"spare_nodes": "4"}])
def test_more_nodes_than_the_allocation_has_are_refused(values):
    with pytest.raises(EnvironmentProblem, match="this allocation has 4") as caught:
        allocation.fit(wishes(**values), ALLOCATION)
    assert caught.value.origin.startswith("--")


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, 0),
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"SLURM_GPUS_PER_NODE": "l40s:2"}, 2),
        ({"SLURM_GPUS_ON_NODE": "2", "SLURM_GPUS_PER_NODE": "4"}, 2),
        ({"SLURM_JOB_GPUS": "0,1,2"}, 3),
        ({"SLURM_STEP_GPUS": "3"}, 1),
        ({"SLURM_GPUS_ON_NODE": "what", "SLURM_JOB_GPUS": ""}, 0),
    ],
)
def test_gpus_are_what_the_allocation_says(variables, gpus):
    fit = allocation.fit(wishes(), {**ALLOCATION, **variables})
    assert fit.gpus_per_node == gpus
    assert ("gpus_per_node" in fit.found) == bool(gpus)


def test_gpus_that_the_allocation_does_not_speak_of_are_believed():
    assert allocation.fit(wishes(gpus_per_node="2"), ALLOCATION).gpus_per_node == 2


def test_fewer_gpus_can_be_asked_for_and_none():
    environ = {**ALLOCATION, "SLURM_GPUS_ON_NODE": "4"}
    assert allocation.fit(wishes(gpus_per_node="2"), environ).gpus_per_node == 2
    assert allocation.fit(wishes(cpu=True), environ).gpus_per_node == 0


def test_more_gpus_than_the_allocation_has_are_refused():
    with pytest.raises(EnvironmentProblem, match="8 GPUs on each node asked for, but this allocation has 4"):
        allocation.fit(wishes(gpus_per_node="8"), {**ALLOCATION, "SLURM_GPUS_ON_NODE": "4"})


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": "7"}, {"SLURM_JOB_NODELIST": "n1"}])
def test_outside_of_an_allocation_there_is_none_to_use(environ):
    with pytest.raises(EnvironmentProblem, match="not inside of an allocation"):
        allocation.fit(wishes(), environ)


def test_a_list_of_nodes_that_cannot_be_read_is_refused():
    with pytest.raises(ConfigError) as caught:
        allocation.fit(wishes(), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-"})
    assert caught.value.origin == "SLURM_JOB_NODELIST=n[1-"


# This machine


def test_local_shares_out_what_is_here():
    assert local.fit(wishes(gpus_per_node="2", cpu=True), {}).gpus_per_node == 0
