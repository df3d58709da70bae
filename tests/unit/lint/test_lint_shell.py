"""How a script is read: words, values, launches, directives."""

import pytest
from linting import HEAD, script

from echelon.lint.parse import parse_shell
from echelon.lint.request import gpus_in
from echelon.lint.slurm_options import UNKNOWN, split_srun
from echelon.lint.syntax import Command
from echelon.lint.values import Values, calculate, number_of, readable


def last_words(text):
    """The expanded words of the last command, as a person would write them."""
    shell = parse_shell(text)
    values = Values(shell.statements)
    index, command = [(i, one) for i, one in enumerate(shell.statements) if isinstance(one, Command)][-1]
    return [readable(field) for word in command.words for field in values.fields(word, index)]


WORDS = {
    "literal": ("run a 'b c' \"d e\"", ["run", "a", "b c", "d e"]),
    "variable": ('A=1\nrun $A ${A}x "$A y"', ["run", "1", "1x", "1 y"]),
    "split": ("A='x y'\nrun $A \"$A\"", ["run", "x", "y", "x y"]),
    "array": ('A=(--x "y z")\nrun "${A[@]}" end', ["run", "--x", "y z", "end"]),
    "unknown": ("run $HOME/x", ["run", "$HOME/x"]),
    "default": ("run ${P:-1}", ["run", "${P:-1}"]),
    "nested": ("A=1\nB=$A-2\nrun $B", ["run", "1-2"]),
    "last assignment": ("A=1\nA=2\nrun $A", ["run", "2"]),
    "later assignment": ("run $A\nA=1\nrun", ["run"]),
    "conditional": ("A=1\nif x; then A=2; fi\nrun $A", ["run", "$A"]),
    "loop variable": ("for A in 1 2; do :; done\nrun $A", ["run", "$A"]),
    "read": ("A=1\nread A\nrun $A", ["run", "$A"]),
    "arithmetic": ("N=2\nrun $((N * 4)) $((N*X))", ["run", "8", "$((2*X))"]),
    "command": ("run $(hostname -i) `date`", ["run", "$(hostname -i)", "$(date)"]),
    "escaped": ('run \\$A "\\$B"', ["run", "$A", "$B"]),
    "continued": ("run a\\\n  b", ["run", "a", "b"]),
    "behind a redirection": ("run a > log b", ["run", "a", "b"]),
    "placeholder": ("run --p=<name> -n<n>", ["run", "--p=<name>", "-n<n>"]),
    "append": ("A=1\nA+=2\nrun $A", ["run", "$A"]),
}


@pytest.mark.parametrize(("text", "expected"), WORDS.values(), ids=WORDS)
def test_words_of_a_command(text, expected):
    assert last_words(text) == expected


def test_value_that_doubles_stays_small():
    text = (
        "A=xxxxxxxxxx\n"
        + "".join(f"A{i}=$A{i - 1 if i else ''}$A{i - 1 if i else ''}\n" for i in range(60))
        + "run $A59"
    )
    assert len("".join(last_words(text))) < 100_000


@pytest.mark.parametrize(
    ("text", "number"), [("2*3+1", 7), ("7/2", 3), ("(1+1)*4", 8), ("1/0", None), ("a", None), ("9**9**9", None)]
)
def test_arithmetic_of_bash(text, number):
    assert calculate(text) == number


def test_numbers_from_variables_of_the_scheduler():
    request = script(f"{HEAD}true\n").request
    assert number_of("\ue000SLURM_NNODES\ue001", request.variables) == 2
    assert number_of("\ue000$((SLURM_NNODES * 4))\ue001", request.variables) == 8
    assert number_of("\ue000OTHER\ue001", request.variables) is None


SCOPES = {
    "a &": "background",
    "{ a; b; } &": "background",
    "if a; then :; fi": "tested",
    "a || b": "tested",
    "! a": "tested",
    "while x; do a; done": "loop",
    "f() { a; }": "conditional",
    "case x in y) a;; esac": "conditional",
}


@pytest.mark.parametrize(("text", "flag"), SCOPES.items())
def test_place_of_a_command(text, flag):
    [command] = [one for one in parse_shell(text).commands if one.name == "a"]
    assert getattr(command.scope, flag)


def test_pipe_has_the_commands_to_the_right():
    first, *_ = parse_shell("a 2>&1 | b | tee log").commands
    assert [one.name for one in first.pipe_to] == ["b", "tee"]


def test_broken_script_names_its_lines():
    shell = parse_shell("echo a\nif x; then\necho b\n", 10)
    assert shell.broken is not None
    assert 10 <= shell.broken[0] <= 13


@pytest.mark.parametrize(
    "text", ["(" * 3000, "$(" * 3000, "{ " * 3000, "if a; then " * 2000, "\0", "\ue000\ue001", "'" * 99]
)
def test_hostile_text_does_not_crash(text):
    try:
        found = script(f"{HEAD}{text}")
    except RecursionError:
        return  # the caller skips the file
    assert found.launches is not None


LAUNCHES = {
    "torchrun": ("srun -N2 torchrun --nnodes=2 t.py --x", ("torchrun", "srun", ("t.py",), ("--x",))),
    "module": ("python -m torch.distributed.run --nproc_per_node 4 t.py", ("torchrun", None, ("t.py",), ())),
    "legacy": ("python3 -u -m torch.distributed.launch --use_env t.py", ("legacy", None, ("t.py",), ())),
    "accelerate": ("accelerate launch --multi_gpu t.py", ("accelerate", None, ("t.py",), ())),
    "package": ("srun python -m pkg.train --x", ("python", "srun", ("-m", "pkg.train"), ("--x",))),
    "wrapped": ("time env A=1 nohup srun numactl -m0 python t.py", ("python", "srun", ("t.py",), ())),
    "container": ("srun singularity exec --nv i.sif python t.py", ("python", "srun", ("t.py",), ())),
    "shell": ("srun bash -c 'cd x && torchrun t.py'", ("torchrun", "srun", ("t.py",), ())),
    "by path": ("/opt/bin/torchrun t.py", ("torchrun", None, ("t.py",), ())),
    "mpirun": ("mpirun -np 4 -x A python t.py", ("python", "mpirun", ("t.py",), ())),
    "other": ("srun -n 4 ./solver in.dat", ("other", "srun", ("./solver",), ("in.dat",))),
}


@pytest.mark.parametrize(("line", "expected"), LAUNCHES.values(), ids=LAUNCHES)
def test_launches(line, expected):
    [launch] = script(f"#!/bin/bash\n{line}\n").launches
    assert (launch.kind, launch.starter, launch.target, launch.arguments) == expected


@pytest.mark.parametrize(
    "line", ["echo torchrun t.py", "srun echo python", "ls", "which python", "pip install torchrun"]
)
def test_commands_that_launch_nothing(line):
    assert [one.kind for one in script(f"#!/bin/bash\n{line}\n").launches] == []


def test_options_of_srun_end_before_the_command():
    options, command = split_srun(["-N2", "-n", "4", "--mpi", "pmix", "-l", "--cpu-bind=none", "python", "-n", "3"])
    assert options == {"nodes": "2", "ntasks": "4", "mpi": "pmix", "label": "", "cpu-bind": "none"}
    assert command == ["python", "-n", "3"]
    assert UNKNOWN in split_srun(["\ue000ARGS\ue001", "python"])[0]


REQUESTS = {
    "nodes and tasks": ("-N 2 --ntasks-per-node=4", {"nodes": 2, "tasks_per_node": 4, "ntasks": 8}),
    "one task by default": ("--nodes=2", {"tasks_per_node": 1, "ntasks": 2}),
    "a range": ("--nodes=2-4", {"nodes": None}),
    "gres": ("-N 2 --gres=gpu:a100:4", {"gpus_per_node": 4, "gpu_type": "a100"}),
    "sum": ("-N 2 --gpus=8", {"gpus_per_node": 4}),
    "uneven sum": ("-N 2 --gpus=5", {"gpus_per_node": None}),
    "by task": ("-N 1 --ntasks-per-node=4 --gpus-per-task=1", {"gpus_per_node": 4}),
    "two that differ": ("--gres=gpu:2 --gpus-per-node=4", {"gpus_per_node": None}),
    "last one counts": ("-N 2 -N 3", {"nodes": 3}),
    "quotes and comments": ('-N 2 --comment="a -N 5" # -N 9', {"nodes": 2}),
}


@pytest.mark.parametrize(("words", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_request(words, expected):
    request = script(f"#!/bin/bash\n#SBATCH {words}\ntrue\n").request
    assert {name: getattr(request, name) for name in expected} == expected


def test_heterogeneous_job_has_no_single_request():
    text = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH hetjob\n#SBATCH -N 4\ntorchrun --nnodes=2 t.py\n"
    assert script(text).request.nodes is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:4", (4, None)),
        ("gpu", (1, None)),
        ("gpu:a100", (1, "a100")),
        ("a100:2", (2, "a100")),
        ("nvme:10,gpu:2", (2, None)),
    ],
)
def test_gpus_in_a_request(text, expected):
    assert gpus_in(text) == expected
