"""A script, module or command that cannot start is found before anything is submitted."""

import sys
from dataclasses import replace

import pytest

from echelon.config.preflight import check_script, check_target
from echelon.errors import ConfigError
from echelon.job import EnvironmentSpec, Job, Resources, Script, ScriptKind

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path, text="", mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def job(folder, kind, target, **more):
    script = Script(kind=kind, target=target)
    return Job(
        name="x",
        script=script,
        cwd=str(folder),
        python=sys.executable,
        resources=Resources(),
        **{"scheduler": "local", **more},
    )


def refusal(call, *args, **options):
    with pytest.raises(ConfigError) as caught:
        call(*args, **options)
    return caught.value


# Scripts


def script_refusal(target):
    return refusal(check_script, Script(kind=ScriptKind.FILE, target=target), "echelon run")


def test_a_folder_is_not_a_script(folder):
    written(folder / "helper.py")
    written(folder / "train.py")
    error = script_refusal(".")
    assert error.what == ". is a folder, not a script"
    assert error.why == "it has no __main__.py; its scripts: helper.py, train.py"
    assert error.hint == "echelon run train.py"


def test_a_folder_without_scripts_is_refused(folder):
    (folder / "data").mkdir()
    assert script_refusal("data").why == "it has no Python scripts"


def test_a_folder_that_python_can_run_is_accepted(folder):
    written(folder / "app" / "__main__.py")
    script = Script(kind=ScriptKind.FILE, target="app")
    assert check_script(script, "echelon run") is script


def test_a_missing_script_gets_a_guess(folder):
    written(folder / "train.py")
    assert script_refusal("trian.py").hint == "did you mean train.py?"
    assert script_refusal("train").hint == "did you mean train.py?"
    assert script_refusal("no/such/folder.py").hint == "echelon run PATH/TO/train.py"


def test_a_shell_script_is_run_as_a_command(folder):
    written(folder / "go.sh", "#!/bin/bash\n")
    assert script_refusal("go.sh").hint == "echelon run -- ./go.sh"


# Commands


def command_refusal(folder, target, **more):
    return refusal(check_target, job(folder, ScriptKind.COMMAND, target, **more), PATH, here=True)


@pytest.mark.parametrize("target", ["true", "/bin/true", "./go.sh", "sub/go.sh"])
def test_a_command_that_is_there_is_accepted(folder, target):
    for path in (folder / "go.sh", folder / "sub" / "go.sh"):
        written(path, "#!/usr/bin/env sh\n", 0o755)
    assert check_target(job(folder, ScriptKind.COMMAND, target), PATH, here=True) is None


def test_a_missing_command_is_refused(folder):
    error = command_refusal(folder, "./nope")
    assert (error.what, error.why) == ("no command ./nope", f"{folder}/nope does not exist")
    error = command_refusal(folder, "nopenope")
    assert (error.what, error.why) == ("no command nopenope", "no such program on PATH")


def test_a_command_line_in_quotes_is_explained(folder):
    assert command_refusal(folder, "sh -c true").hint == "without quotes: -- sh -c true"


def test_a_command_in_the_folder_but_not_on_path(folder):
    written(folder / "go.sh", mode=0o755)
    written(folder / "train.py", mode=0o755)
    assert command_refusal(folder, "go.sh").hint == "-- ./go.sh"
    assert command_refusal(folder, "train.py").hint == "echelon run train.py, without --"


def test_a_command_that_is_not_executable(folder):
    written(folder / "go.sh")
    error = command_refusal(folder, "./go.sh")
    assert (error.what, error.hint) == ("cannot execute ./go.sh", "chmod u+x ./go.sh")


@pytest.mark.parametrize("line", ["#!/no/such/shell -e", "#!/usr/bin/env nosuchshell", "#! /no/such/shell"])
def test_a_command_whose_interpreter_is_missing(folder, line):
    written(folder / "go.sh", f"{line}\necho\n", 0o755)
    error = command_refusal(folder, "./go.sh")
    assert error.origin == f"{folder}/go.sh:1"
    assert "does not exist" in error.why


@pytest.mark.parametrize("line", ["#!/usr/bin/env -S python3 -u", "#!/bin/sh -e", "no script at all", ""])
def test_other_first_lines_are_accepted(folder, line):
    written(folder / "go", f"{line}\n", 0o755)
    assert check_target(job(folder, ScriptKind.COMMAND, "./go"), PATH, here=True) is None


def test_the_path_that_is_set_for_the_ranks_counts(folder):
    written(folder / "bin" / "mine", mode=0o755)
    described = job(folder, ScriptKind.COMMAND, "mine", env={"PATH": str(folder / "bin")})
    assert check_target(described, PATH, here=True) is None


def test_missing_program_that_nodes_may_have_is_a_warning(folder):
    described = job(folder, ScriptKind.COMMAND, "nopenope", scheduler="slurm")
    assert check_target(described, PATH, here=False) == (
        "no command nopenope on this machine (no such program on PATH); the nodes must have it"
    )


def test_a_missing_file_on_a_shared_file_system_is_certain():
    described = job("/usr/share", ScriptKind.COMMAND, "./nope", scheduler="slurm")
    assert refusal(check_target, described, PATH, here=False).what == "no command ./nope"


@pytest.mark.parametrize("kind", [ScriptKind.COMMAND, ScriptKind.MODULE])
def test_containers_and_ssh_hosts_are_not_checked(folder, kind):
    described = job(folder, kind, "nopenope")
    assert check_target(replace(described, scheduler="ssh"), PATH, here=True) is None
    enclosed = replace(described, environment="apptainer", enclosure=EnvironmentSpec(image="/i.sif"))
    assert check_target(enclosed, PATH, here=True) is None


# Modules


@pytest.fixture
def package(folder):
    written(folder / "pkg" / "__init__.py", "raise SystemExit('a check must not import the package')")
    written(folder / "pkg" / "train.py")
    written(folder / "pkg" / "app" / "__main__.py")
    written(folder / "single.py")
    return folder


@pytest.mark.parametrize("target", ["pkg.train", "pkg.app", "single", "json.tool", "timeit"])
def test_a_module_that_is_there_is_accepted(package, target):
    assert check_target(job(package, ScriptKind.MODULE, target), PATH, here=True) is None


@pytest.mark.parametrize(
    ("target", "why", "hint"),
    [
        ("pkg.trian", "No module named pkg.trian", "did you mean pkg.train?"),
        ("pgk.train", "No module named pgk", "run from the folder that contains it, or --set PYTHONPATH=DIR"),
        ("singel", "No module named singel", "did you mean single?"),
        ("pkg", "pkg is a package without __main__.py", "did you mean"),
        ("single.train", "single is not a package", "run from the folder"),
    ],
)
def test_a_missing_module_is_refused(package, target, why, hint):
    error = refusal(check_target, job(package, ScriptKind.MODULE, target), PATH, here=True)
    assert error.what == f"no module {target} to run"
    assert error.why == f"{why} ({sys.executable} in {package})"
    assert error.hint.startswith(hint) or target == "pkg"


def test_a_module_on_the_ranks_python_path_is_found(package, tmp_path_factory):
    described = job(tmp_path_factory.mktemp("elsewhere"), ScriptKind.MODULE, "single", env={"PYTHONPATH": str(package)})
    assert check_target(described, PATH, here=True) is None


def test_a_package_that_changes_its_path_is_not_judged(package):
    (package / "pkg" / "__init__.py").write_text("__path__.append('/elsewhere')")
    assert check_target(job(package, ScriptKind.MODULE, "pkg.other"), PATH, here=True) is None


def test_python_without_an_answer_refuses_nothing(package):
    described = replace(job(package, ScriptKind.MODULE, "nope"), python="/bin/false")
    assert check_target(described, PATH, here=True) is None
