"""What a node that could not be taken into its environment has said, and what it means."""

import base64
import os
from pathlib import Path

import pytest

from echelon.agent.environ import decode_environ, host_environ, merge_environ
from echelon.backends.node_environ import node_environ
from echelon.environments.containers import describes_host
from echelon.environments.node_script import entry_problem, output_tail, wrap_command
from echelon.job import EnvironmentSpec, Job, Script, ScriptKind

JOB = Job(
    name="gpt", script=Script(kind=ScriptKind.FILE, target="x.py"), cwd="/work", python="python3", scheduler="local"
)
SETUP = Job(**{**vars(JOB), "environment": "setup", "enclosure": EnvironmentSpec(setup=("true",))})
IMAGE = Job(
    **{**vars(JOB), "environment": "enroot", "enclosure": EnvironmentSpec(image="/a.sqsh"), "secret_env": ("A_KEY",)}
)
RUN = Path("/runs/gpt")
REFUSED = "Lmod has detected an error\nerror: the module x cannot be loaded\n  try   module avail x\n"


def test_node_sh_wraps_a_command_only_with_an_environment():
    assert wrap_command(JOB, RUN, ["python", "x"]) == ["python", "x"]
    assert wrap_command(SETUP, RUN, ["python"], Path("/w")) == ["/bin/bash", "/runs/gpt/node.sh", "/w", "python"]
    assert wrap_command(SETUP, RUN, ["python"]) == ["/bin/bash", "/runs/gpt/node.sh", "/runs/gpt/node.words", "python"]


def test_a_refusal_has_what_why_and_a_hint():
    trouble = entry_problem("modules", 78, REFUSED, "")
    assert trouble.what == "the environment (modules) could not be entered"
    assert trouble.why == "the module x cannot be loaded\nLmod has detected an error"
    assert trouble.hint == "module avail x"


@pytest.mark.parametrize("code", [0, 1, 78, 143])
def test_refusal_is_detected_with_any_exit_code(code):
    """pbsdsh says 0 whatever happens."""
    assert entry_problem("modules", code, REFUSED, "") is not None


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
    trouble = entry_problem(environment, code, words, output)
    assert (trouble is not None) == blamed
    if trouble is not None:
        assert f"exit code {code}" in trouble.why
        assert output in trouble.why


NO_BASH = "slurmstepd: error: execve(): /bin/bash: No such file or directory\nsrun: error: n1: task 0: Exited with exit code 2\n"
FULL_DISK = """slurmstepd: error: pyxis: child 4711 failed with error code: 1
slurmstepd: error: pyxis: failed to create container filesystem for image: /a.sqsh
slurmstepd: error: pyxis: printing enroot log file:
slurmstepd: error: pyxis:     [INFO] Extracting squashfs filesystem...
slurmstepd: error: pyxis:     Write on output file failed because No space left on device
slurmstepd: error: pyxis:     FATAL ERROR: writer: failed to write file /data/pyxis_1.0/blob
slurmstepd: error: pyxis:     Parallel unsquashfs: Using 2 processors
slurmstepd: error: pyxis:     201 inodes (262 blocks) to write
slurmstepd: error: pyxis:\x20
slurmstepd: error: pyxis:\x20
slurmstepd: error: pyxis:     created 5 files
slurmstepd: error: pyxis:     created 1 directory
slurmstepd: error: pyxis:     created 0 symlinks
slurmstepd: error: pyxis:     created 0 devices
slurmstepd: error: pyxis:     created 0 fifos
slurmstepd: error: pyxis:     created 0 sockets
slurmstepd: error: pyxis:     created 0 hardlinks
slurmstepd: error: pyxis: couldn't start container
srun: error: n1: task 0: Exited with exit code 1
"""


def test_an_image_without_bash_is_an_environment_problem():
    trouble = entry_problem("pyxis", 2, None, NO_BASH)
    assert trouble.why == f"the image has no /bin/bash\n{NO_BASH.splitlines()[0]}"
    assert trouble.hint == "another --image, with bash and Python 3.10 in it"
    assert entry_problem("bare", 2, None, NO_BASH) is None


def test_a_failed_create_shows_its_reason_and_no_statistics():
    why = entry_problem("pyxis", 1, None, FULL_DISK).why
    assert "No space left on device" in why
    assert "created" not in why.replace("failed to create", "")


def test_ranks_have_home_and_path_without_a_login_shell(monkeypatch):
    monkeypatch.delenv("HOME")
    environ = node_environ({}, JOB)
    assert environ["HOME"].startswith("/")
    assert environ["PATH"] == os.defpath
    assert node_environ({"HOME": "/h", "PATH": "/p"}, JOB)["HOME"] == "/h"


def test_a_wall_of_words_is_cut():
    why = entry_problem("modules", 78, "line\n" * 500 + REFUSED, "").why
    assert len(why.splitlines()) == 9


def test_the_last_lines_of_the_output(tmp_path):
    assert output_tail(tmp_path / "nothing") == ""
    (tmp_path / "job.out").write_text("x" * 9000 + "\nthe end\n")
    assert output_tail(tmp_path / "job.out").endswith("\nthe end\n")
    assert len(output_tail(tmp_path / "job.out")) == 2000


# Variables that come another way than by whatever starts the agent

CARRIED = {"PATH": "/user/bin:/bin", "A": "sent", "LD_PRELOAD": "x.so", "A_KEY": "s", "PYTHONPATH": "/lib"}
OWN = {"PATH": "/env/bin:/bin", "A": "own", "VIRTUAL_ENV": "/env", "A_KEY": "the image's"}


def test_sent_variables_take_precedence_without_environment():
    assert merge_environ(CARRIED, OWN, JOB) == {**OWN, **CARRIED}


def test_variables_of_node_sh_take_precedence():
    environ = merge_environ(CARRIED, OWN, SETUP)
    assert (environ["PATH"], environ["A"], environ["LD_PRELOAD"]) == ("/env/bin:/bin:/user/bin", "own", "x.so")


def test_container_gets_secrets_but_no_host_variables():
    environ = merge_environ(CARRIED, OWN, IMAGE)
    assert (environ["PATH"], environ["A_KEY"], environ["PYTHONPATH"]) == ("/env/bin:/bin", "s", "/lib")
    assert "LD_PRELOAD" not in environ


def test_on_pbs_the_hosts_own_values_are_kept_as_ever():
    own = {**OWN, "CUDA_VISIBLE_DEVICES": "3", "PBS_JOBID": "1.pbs"}
    assert (
        host_environ(CARRIED, own, SETUP).items()
        >= {"CUDA_VISIBLE_DEVICES": "3", "PBS_JOBID": "1.pbs", "A": "own"}.items()
    )
    assert "A" in host_environ(CARRIED, own, JOB)
    assert host_environ(CARRIED, own, JOB)["A"] == "sent"


@pytest.mark.parametrize(
    ("name", "is_of_the_host"),
    [
        ("PATH", True),
        ("LD_LIBRARY_PATH", True),
        ("HOME", True),
        ("BASH_FUNC_module%%", True),
        ("NCCL_DEBUG", False),
        ("PYTHONPATH", False),
        ("SLURM_JOB_ID", False),
        ("CUDA_VISIBLE_DEVICES", False),
        ("ECHELON_FOLDER", False),
    ],
)
def test_which_variables_describe_a_host(name, is_of_the_host):
    assert describes_host(name) == is_of_the_host


def test_variables_changed_by_enroot_are_restored():
    hidden = base64.b64encode(b"A=one\ntwo\0B='\"'\0C=\xff=\0").decode()
    environ = decode_environ({"PATH": "/bin", "ECHELON_ENCODED": hidden, "A": "one"})
    assert environ == {"PATH": "/bin", "A": "one\ntwo", "B": "'\"'", "C": "\udcff="}
    assert decode_environ({"PATH": "/bin"}) == {"PATH": "/bin"}
