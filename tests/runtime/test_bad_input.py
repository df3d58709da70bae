"""Bad input gives a four-part message and the right exit code."""

import contextlib
import os
import socket
import subprocess
import venv

import pytest

from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"


def assert_refused(result, code, *words):
    assert result.returncode == code, result.stderr
    assert result.stderr.startswith("error: "), result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


@pytest.mark.parametrize("flags", [("-N", "0"), ("-N", "-1"), ("-g", "0"), ("--procs-per-node", "-3"), ("-N", "two")])
def test_impossible_sizes_are_refused(echelon, flags):
    result = echelon("run", *flags, STEPS)
    assert_refused(
        result,
        2,
        f"from  --{'nodes' if flags[0] == '-N' else flags[0].strip('-').replace('g', 'gpus-per-node', 1) if flags[0] == '-g' else 'procs-per-node'} {flags[1]}",
    )
    assert not (echelon.folder / "runs").exists()


def test_missing_script_is_refused_before_the_start(echelon):
    echelon.script("train.py", "")
    assert_refused(echelon("run", "trian.py"), 2, "no script at trian.py", "did you mean train.py?")
    assert not (echelon.folder / "runs").exists()


def test_missing_module_is_refused_before_anything_starts(echelon):
    result = echelon("submit", "-m", "no_such_module")
    assert_refused(result, 2, "no_such_module", "No module named no_such_module")
    assert not (echelon.folder / "runs").exists()


def test_missing_script_argument_is_refused(echelon):
    assert_refused(echelon("run", "-N", "2"), 2, "no script was given")


def test_a_shell_script_gets_the_right_command(echelon):
    path = echelon.script("go.sh", "#!/bin/sh\necho hi\n")
    path.chmod(0o755)
    assert_refused(echelon("run", "go.sh"), 2, "not a Python script", "-- ./go.sh")
    assert echelon("run", "--", "./go.sh").stdout == "[0] hi\n"


def test_a_misspelled_flag_gets_a_suggestion(echelon):
    assert_refused(echelon("run", "--node", "2", STEPS), 2, "unknown flag --node", "did you mean --nodes?")


def test_a_misspelled_command_gets_a_suggestion(echelon):
    assert_refused(echelon("stauts"), 2, "did you mean status?")


def test_a_misspelled_key_is_refused_with_its_line(echelon):
    echelon.script("echelon.toml", 'name = "x"\nnode = 2\n')
    assert_refused(echelon("run", STEPS), 2, "unknown key 'node'", "echelon.toml:2", "did you mean nodes?")


def test_a_misspelled_variable_is_refused(echelon):
    result = echelon("run", STEPS, env={"ECHELON_NODS": "2"})
    assert_refused(result, 2, "ECHELON_NODS=2", "did you mean ECHELON_NODES?")


@pytest.mark.parametrize("content", [b"nodes = = 2\n", b"\xff\xfe\n", b'nodes = "many"\n', b"nodes = true\n"])
def test_a_broken_config_is_named(echelon, content):
    (echelon.folder / "echelon.toml").write_bytes(content)
    assert_refused(echelon("run", STEPS), 2, "echelon.toml")


def test_an_unreadable_config_is_named(echelon):
    (echelon.folder / "echelon.toml").mkdir()
    assert_refused(echelon("run", STEPS), 2, "cannot read", "echelon.toml")


@pytest.mark.parametrize("command", ["status", "logs", "why", "cancel", "resume"])
def test_unknown_run_is_refused(echelon, command):
    assert_refused(echelon(command, "nothing"), 2, "no run matches 'nothing'", "echelon ls")


def test_ambiguous_run_id_is_refused(echelon):
    runs = [echelon.submit("--cold", "--name", "twin", STEPS, "--steps", "1") for _ in range(2)]
    for run in runs:
        run.wait()
    result = echelon("status", "twin")
    assert_refused(result, 2, "'twin' matches 2 runs", *(run.id for run in runs))


def test_python_without_torch_prints_one_message(echelon, tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    script = echelon.script("train.py", "import torch\n")
    result = echelon("run", "-g", "4", "--python", tmp_path / "bare" / "bin" / "python", script)
    assert result.returncode == 3
    assert "torch is not installed for" in result.stderr
    assert "--python PATH" in result.stderr
    assert result.stdout == "", "no rank has run the script"
    assert all("Traceback" not in text for text in (result.stderr, (echelon.only_run().path / "job.out").read_text()))


def test_missing_python_is_refused(echelon):
    assert_refused(echelon("run", "--python", "/no/such/python", STEPS), 3, "/no/such/python", "--python")


def test_occupied_port_range_is_refused(echelon):
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = echelon("run", "--cold", "--ports", f"{port}-{port}", STEPS)
    assert result.returncode == 3
    assert f"all ports {port}-{port} are in use" in result.stderr
    assert "--ports" in result.stderr


@pytest.mark.parametrize("ports", ["x", "5-2", "0", "70000"])
def test_invalid_port_range_is_refused(echelon, ports):
    assert_refused(echelon("run", "--ports", ports, STEPS), 2, "29500-29599")


def test_a_notice_longer_than_the_time_limit(echelon):
    assert_refused(echelon("run", "--time", "10s", "--notice", "20s", STEPS), 2, "notice is 20s", "--notice 2.5s")


@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", "", "x" * 65])
def test_hostile_names_stay_quoted(echelon, name):
    assert_refused(echelon("run", "--name", name, STEPS), 2)
    assert not (echelon.folder / "runs").exists()


@pytest.fixture
def tiny_disk(tmp_path):
    """A real file system that is really full soon."""
    path = tmp_path / "tiny"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.root
def test_a_full_disk_for_the_run_directory(echelon, tiny_disk):
    result = echelon("run", STEPS, env={"ECHELON_RUNS": str(tiny_disk)})
    assert_refused(result, 3, "No space left on device", "ECHELON_RUNS=DIR")
    assert list(tiny_disk.iterdir()) == [], "half a run was left"


def test_a_runs_folder_that_cannot_be_made(echelon):
    echelon.script("file", "")
    result = echelon("run", STEPS, env={"ECHELON_RUNS": str(echelon.folder / "file")})
    assert_refused(result, 3, "cannot write", "ECHELON_RUNS=DIR")


def test_a_run_directory_that_others_may_write_is_refused(echelon):
    run = echelon.submit("--cold", STEPS, "--steps", "1")
    run.wait()
    run.path.chmod(0o770)
    result = echelon("resume", run.id)
    assert_refused(result, 3, "can be written by others", "chmod 700")
    run.path.chmod(0o700)


@pytest.mark.root
def test_a_foreign_run_directory_is_refused(echelon):
    run = echelon.submit("--cold", STEPS, "--steps", "1")
    run.wait()
    os.chown(run.path, 12345, 12345)
    assert_refused(echelon("resume", run.id), 3, "belongs to another user")


def test_more_gpus_than_there_are(echelon):
    from echelon.errors import EnvironmentProblem
    from echelon.system.machine import resolve_gpus_per_node

    with pytest.raises(
        EnvironmentProblem, match=r"2 nodes x 4 GPUs = 8 GPUs requested, but this machine has 3"
    ) as info:
        resolve_gpus_per_node(asked=4, nodes=2, present=3, cpu=False)
    assert "--cpu" in str(info.value)
