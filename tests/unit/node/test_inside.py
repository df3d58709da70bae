"""What a node that could not be taken into its environment has said, and what it means."""

import base64
from pathlib import Path

import pytest

from echelon.environments.host_variables import describes_host
from echelon.job import Enclosure, Job, Script, ScriptKind
from echelon.node.carried import blended, host_environ
from echelon.node.environ import decoded
from echelon.node.inside import inside, last_lines, refusal_of

JOB = Job(name="gpt", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/work", python="python3")
SETUP = Job(**{**vars(JOB), "environment": "setup", "enclosure": Enclosure(setup=("true",))})
IMAGE = Job(**{**vars(JOB), "environment": "enroot", "enclosure": Enclosure(image="/a.sqsh"), "secret_env": ("A_KEY",)})
RUN = Path("/runs/gpt")
REFUSED = "Lmod has detected an error\nerror: the module x cannot be loaded\n  try   module avail x\n"


def test_a_command_goes_through_node_sh_only_where_there_is_an_environment():
    assert inside(JOB, RUN, ["python", "x"]) == ["python", "x"]
    assert inside(SETUP, RUN, ["python"], Path("/w")) == ["/bin/bash", "/runs/gpt/node.sh", "/w", "python"]
    assert inside(SETUP, RUN, ["python"]) == ["/bin/bash", "/runs/gpt/node.sh", "/runs/gpt/node.words", "python"]


def test_a_refusal_has_what_why_and_a_hint():
    trouble = refusal_of("modules", 78, REFUSED, "")
    assert trouble.what == "the environment (modules) could not be entered"
    assert trouble.why == "the module x cannot be loaded\nLmod has detected an error"
    assert trouble.hint == "module avail x"


@pytest.mark.parametrize("code", [0, 1, 78, 143])
def test_a_refusal_counts_whatever_code_came_through(code):
    """pbsdsh says 0 whatever happens."""
    assert refusal_of("modules", code, REFUSED, "") is not None


@pytest.mark.parametrize(
    ("environment", "code", "words", "output", "blamed"),
    [
        ("setup", 1, None, "anything", False),  # the command had begun: its own end
        ("setup", 0, "", "", False),
        ("enroot", 1, "", "enroot: failed to mount", True),  # what leads into the container failed
        ("enroot", 137, "", "", False),  # it was killed, as everything is at the end of a job
        ("enroot", -15, "", "", False),
        ("enroot", 192, "", "", False),  # by the last of the signals
        ("apptainer", 255, "", "FATAL:   container creation failed", True),  # how it ends whatever its trouble
        ("apptainer", 255, None, "", False),
        ("enroot", 1, None, "pyxis: no", False),
        ("pyxis", 1, None, "slurmstepd: error: pyxis: no such image", True),  # before node.sh could say a word
        ("pyxis", 1, None, "srun: error: Unable to create step", False),
        ("pyxis", 143, None, "pyxis: terminated", False),
    ],
)
def test_who_is_to_blame(environment, code, words, output, blamed):
    trouble = refusal_of(environment, code, words, output)
    assert (trouble is not None) == blamed
    if trouble is not None:
        assert f"exit code {code}" in trouble.why
        assert output in trouble.why


def test_a_wall_of_words_is_cut():
    why = refusal_of("modules", 78, "line\n" * 500 + REFUSED, "").why
    assert len(why.splitlines()) == 9


def test_the_last_lines_of_the_output(tmp_path):
    assert last_lines(tmp_path / "nothing") == ""
    (tmp_path / "job.out").write_text("x" * 9000 + "\nthe end\n")
    assert last_lines(tmp_path / "job.out").endswith("\nthe end\n")
    assert len(last_lines(tmp_path / "job.out")) == 2000


# Variables that come another way than by whatever starts the agent

CARRIED = {"PATH": "/user/bin:/bin", "A": "carried", "LD_PRELOAD": "x.so", "A_KEY": "s", "PYTHONPATH": "/lib"}
OWN = {"PATH": "/env/bin:/bin", "A": "own", "VIRTUAL_ENV": "/env", "A_KEY": "the image's"}


def test_without_an_environment_what_was_sent_along_wins():
    assert blended(CARRIED, OWN, JOB) == {**OWN, **CARRIED}


def test_what_node_sh_has_set_wins_and_the_rest_is_added():
    environ = blended(CARRIED, OWN, SETUP)
    assert (environ["PATH"], environ["A"], environ["LD_PRELOAD"]) == ("/env/bin:/bin:/user/bin", "own", "x.so")


def test_what_describes_the_host_stays_out_of_a_container_but_secrets_come_in():
    environ = blended(CARRIED, OWN, IMAGE)
    assert (environ["PATH"], environ["A_KEY"], environ["PYTHONPATH"]) == ("/env/bin:/bin", "s", "/lib")
    assert "LD_PRELOAD" not in environ


def test_on_pbs_the_hosts_own_values_are_kept_as_ever():
    own = {**OWN, "CUDA_VISIBLE_DEVICES": "3", "PBS_JOBID": "1.pbs"}
    assert (
        host_environ(CARRIED, own, SETUP).items()
        >= {"CUDA_VISIBLE_DEVICES": "3", "PBS_JOBID": "1.pbs", "A": "own"}.items()
    )
    assert "A" in host_environ(CARRIED, own, JOB)
    assert host_environ(CARRIED, own, JOB)["A"] == "carried"


@pytest.mark.parametrize(
    ("name", "is_of_the_host"),
    [("PATH", True), ("LD_LIBRARY_PATH", True), ("HOME", True), ("BASH_FUNC_module%%", True), ("NCCL_DEBUG", False),
     ("PYTHONPATH", False), ("SLURM_JOB_ID", False), ("CUDA_VISIBLE_DEVICES", False), ("ECHELON_FOLDER", False)],
)  # fmt: skip
def test_which_variables_describe_a_host(name, is_of_the_host):
    assert describes_host(name) == is_of_the_host


def test_what_enroot_would_have_changed_is_put_back():
    hidden = base64.b64encode(b"A=one\ntwo\0B='\"'\0C=\xff=\0").decode()
    environ = decoded({"PATH": "/bin", "ECHELON_ENCODED": hidden, "A": "one"})
    assert environ == {"PATH": "/bin", "A": "one\ntwo", "B": "'\"'", "C": "\udcff="}
    assert decoded({"PATH": "/bin"}) == {"PATH": "/bin"}
