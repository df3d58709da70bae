"""The program with which mpirun starts its daemons on the other hosts of a PBS job."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.backends.mpi_remote_shell import check_remote_shell, write_remote_shell
from echelon.errors import EnvironmentProblem
from echelon.job import Job, LauncherOptions, Script, ScriptKind
from echelon.launchers import LaunchContext, mpirun

JOB = Job(
    name="x",
    script=Script(kind=ScriptKind.FILE, target="x.py"),
    cwd="/",
    python="python",
    scheduler="pbs",
    launcher="mpirun",
)


def tmrsh(folder):
    """Runs its words without a shell and with a PATH of its own, as the real one does."""
    path = folder / "pbs_tmrsh"
    path.write_text('#!/bin/sh\necho "on $1"; shift; exec env -i PATH=/bin:/usr/bin "$@"\n')
    path.chmod(0o755)
    return {"PATH": f"{folder}:{os.defpath}", "PBS_JOBID": "1.pbs", "LD_LIBRARY_PATH": "/opt/it's mpi/lib"}


def test_shell_command_runs_as_a_pbs_task(tmp_path):
    command = write_remote_shell(JOB, tmrsh(tmp_path), tmp_path).split()
    line = 'echo "$LD_LIBRARY_PATH" "a;b"; exit 7'
    done = subprocess.run([*command, "n2", *line.split(" ", 1)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "on n2\n/opt/it's mpi/lib a;b\n")


def test_remote_shell_exists_only_for_mpirun_on_pbs(tmp_path):
    environ = tmrsh(tmp_path)
    assert write_remote_shell(replace(JOB, launcher="torchrun"), environ, tmp_path) == ""
    assert write_remote_shell(JOB, {**environ, "PBS_JOBID": ""}, tmp_path) == ""
    assert write_remote_shell(JOB, {**environ, "PATH": os.defpath}, tmp_path) == ""


TM = 'mca:plm:tm:version:"component:4.1.4"'
RSH = 'mca:plm:rsh:version:"component:4.1.4"'
TWO = ("n1", "n2")


def open_mpi(folder, *components):
    """An Open MPI whose ompi_info lists these, in the words of version 4.1."""
    for name, text in (("mpirun", ""), ("ompi_info", "\n".join(f"echo '{line}'" for line in components))):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.defpath}", "PBS_JOBID": "1.pbs"}


def test_mpirun_does_not_use_ssh_by_default_on_pbs(tmp_path):
    environ = open_mpi(tmp_path, RSH)
    with pytest.raises(EnvironmentProblem, match="mpirun cannot reach the other hosts through PBS") as caught:
        check_remote_shell(JOB, environ, TWO, "")
    assert "pbs_tmrsh is not on PATH" in caught.value.why
    assert "OMPI_MCA_plm_rsh_agent=ssh" in caught.value.hint


@pytest.mark.parametrize("components", [(RSH, TM), ()], ids=["tm", "ompi_info that lists none"])
def test_mpirun_with_possible_pbs_support_is_started(tmp_path, components):
    check_remote_shell(JOB, open_mpi(tmp_path, *components), TWO, "")


def test_single_host_or_no_pbs_needs_no_remote_shell(tmp_path):
    environ = open_mpi(tmp_path, RSH)
    check_remote_shell(JOB, environ, ("n1",), "")
    check_remote_shell(JOB, {**environ, "PBS_JOBID": ""}, TWO, "")
    check_remote_shell(replace(JOB, launcher="torchrun"), environ, TWO, "")


def test_users_mpirun_agent_is_kept(tmp_path):
    environ = open_mpi(tmp_path, RSH)
    check_remote_shell(JOB, {**environ, "OMPI_MCA_plm_rsh_agent": "ssh"}, TWO, "")
    check_remote_shell(replace(JOB, launching=LauncherOptions(options={"mca": "plm_rsh_agent ssh"})), environ, TWO, "")


@pytest.mark.parametrize("name", ["my folder", "a:b"])
def test_path_that_mpirun_would_split_is_refused(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    environ = tmrsh(tmp_path)
    with pytest.raises(EnvironmentProblem, match="mpirun cannot use") as caught:
        check_remote_shell(JOB, environ, TWO, write_remote_shell(JOB, environ, folder))
    assert "TMPDIR" in caught.value.hint


def test_mpirun_starts_all_daemons_from_the_first_host():
    where = LaunchContext(
        node_rank="0",
        is_first="1",
        nodes=2,
        procs_per_node=1,
        main_address="n1",
        main_port="1",
        launcher_port="2",
        own_address="n1",
        hosts=("n1", "n2"),
        folder="/tmp/x",
    )
    given = mpirun.mpirun_command(JOB, replace(where, remote_shell="/tmp/x/remote-shell"), ["worker"], {}).env
    assert given["OMPI_MCA_plm_rsh_agent"] == str(Path("/tmp/x/remote-shell"))
    assert given["OMPI_MCA_plm_rsh_no_tree_spawn"] == given["OMPI_MCA_orte_leave_session_attached"] == "1"
    assert "OMPI_MCA_plm_rsh_agent" not in mpirun.mpirun_command(JOB, where, ["worker"], {}).env
