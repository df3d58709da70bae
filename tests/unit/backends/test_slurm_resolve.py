"""Settings resolved by Slurm, an allocation and this machine."""

import pytest

from echelon.backends.allocation import BACKEND as ALLOCATED
from echelon.backends.local import Local
from echelon.backends.slurm import control as slurm
from echelon.config.decode import Settings
from echelon.config.sources import default_layer, flag_layer, merge_layers
from echelon.errors import ConfigError, EnvironmentProblem

ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-4]"}


def wishes(**values):
    return Settings(merge_layers([default_layer(), flag_layer(values)]))


# Slurm


@pytest.mark.parametrize(
    ("values", "gpus"),
    [({}, 0), ({"gpus_per_node": "8"}, 8), ({"gpus_per_node": "8", "cpu": True}, 0), ({"procs_per_node": "4"}, 0)],
)
def test_requested_gpus_are_used(values, gpus):
    assert slurm.resolve(wishes(**values), {}).gpus_per_node == gpus


@pytest.mark.parametrize(
    ("name", "flag"), [("nodes", "--nodes"), ("time", "--time"), ("mail-user", "--mail"), ("signal", "--notice")]
)
def test_sbatch_option_error_names_the_echelon_flag(name, flag):
    with pytest.raises(ConfigError, match=f"--{name} is set by echelon itself") as caught:
        slurm.resolve(wishes(slurm={name: "3"}), {})
    assert (caught.value.origin, caught.value.hint) == ("--slurm", flag)


def test_reserved_sbatch_option_is_refused():
    with pytest.raises(ConfigError) as caught:
        slurm.resolve(wishes(slurm={"output": "/dev/null"}), {})
    assert "echelon render" in caught.value.hint


@pytest.mark.parametrize("gres", ["gpu:4", "gpu", "nvme:1,gpu:a100:2"])
def test_gpus_in_native_gres_are_refused(gres):
    with pytest.raises(ConfigError) as caught:
        slurm.resolve(wishes(slurm={"gres": gres}), {})
    assert "--gpus-per-node" in caught.value.hint


@pytest.mark.parametrize("name", ["exclusive", "gres", "switches", "container-image", "nice"])
def test_other_sbatch_options_are_accepted(name):
    slurm.resolve(wishes(slurm={name: "x"}), {})


def test_sbatch_variables_are_defaults_with_an_origin():
    found = slurm.resolve(wishes(), {"SBATCH_ACCOUNT": "nlp", "SBATCH_PARTITION": "", "SBATCH_TIMELIMIT": "5"}).values
    assert {key: (one.value, one.origin) for key, one in found.items()} == {"account": ("nlp", "SBATCH_ACCOUNT=nlp")}


# An allocation


@pytest.mark.parametrize(
    ("values", "nodes"),
    [({}, 4), ({"spare_nodes": "1"}, 3), ({"nodes": "2"}, 2), ({"nodes": "3", "spare_nodes": "1"}, 3)],
)
def test_all_nodes_of_the_allocation_are_the_default(values, nodes):
    assert ALLOCATED.resolve(wishes(**values), ALLOCATION).values["nodes"].value == nodes


@pytest.mark.parametrize("values", [{"nodes": "5"}, {"nodes": "4", "spare_nodes": "1"}, {"spare_nodes": "4"}])
def test_more_nodes_than_the_allocation_has_are_refused(values):
    with pytest.raises(EnvironmentProblem, match="this allocation has 4") as caught:
        ALLOCATED.resolve(wishes(**values), ALLOCATION)
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
def test_gpus_come_from_allocation_variables(variables, gpus):
    fit = ALLOCATED.resolve(wishes(), {**ALLOCATION, **variables})
    assert fit.gpus_per_node == gpus
    assert ("gpus_per_node" in fit.values) == bool(gpus)


def test_requested_gpus_count_if_allocation_lists_none():
    assert ALLOCATED.resolve(wishes(gpus_per_node="2"), ALLOCATION).gpus_per_node == 2


def test_fewer_or_no_gpus_can_be_requested():
    environ = {**ALLOCATION, "SLURM_GPUS_ON_NODE": "4"}
    assert ALLOCATED.resolve(wishes(gpus_per_node="2"), environ).gpus_per_node == 2
    assert ALLOCATED.resolve(wishes(cpu=True), environ).gpus_per_node == 0


def test_more_gpus_than_the_allocation_has_are_refused():
    with pytest.raises(EnvironmentProblem, match="8 GPUs per node requested, but this allocation has 4"):
        ALLOCATED.resolve(wishes(gpus_per_node="8"), {**ALLOCATION, "SLURM_GPUS_ON_NODE": "4"})


@pytest.mark.parametrize("environ", [{}, {"SLURM_JOB_ID": "7"}, {"SLURM_JOB_NODELIST": "n1"}])
def test_outside_an_allocation_is_an_error(environ):
    with pytest.raises(EnvironmentProblem, match="not inside a Slurm or PBS allocation"):
        ALLOCATED.resolve(wishes(), environ)


def test_invalid_node_list_is_refused():
    with pytest.raises(ConfigError) as caught:
        ALLOCATED.resolve(wishes(), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-"})
    assert caught.value.origin == "SLURM_JOB_NODELIST=n[1-"


# This machine


def test_local_divides_gpus_between_nodes():
    assert Local().resolve(wishes(gpus_per_node="2", cpu=True), {}).gpus_per_node == 0
