"""The command that replaces a script, and that `echelon render` takes it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from linting import HEAD, script

from echelon.backends.pbs.script import RESERVED_OPTIONS as SET_FOR_PBS
from echelon.backends.slurm.script import RESERVED_OPTIONS as SET_FOR_SLURM
from echelon.lint.check import lint_files
from echelon.lint.migrate.command import find_replacement
from echelon.lint.migrate.request import NATIVE, parse_slurm_time, scaled_memory

SRUN = "srun --kill-on-bad-exit=1"
TUTORIALS = Path(__file__).parents[4] / "shared" / "seeds"


def replacement(text, path="job.sbatch", companions=None):
    return find_replacement(script(text, path), (companions or {}).get)


def command(text, **options):
    found = replacement(text, **options)
    return " ".join(found.command[2:])


CASES = {
    "torchrun": (
        f"{HEAD}{SRUN} torchrun --nproc-per-node=4 --max-restarts=3 t.py --lr 1e-4\n",
        "-N 2 -g 4 --restarts 3 t.py --lr 1e-4",
    ),
    "module": (f"{HEAD}{SRUN} torchrun --nproc-per-node=4 -m pkg.train --x\n", "-N 2 -g 4 -m pkg.train --x"),
    "one task per rank": (f"{HEAD.replace('node=1', 'node=4')}{SRUN} python t.py\n", "-N 2 -g 4 t.py"),
    "cpu ranks": (
        "#!/bin/bash\n#SBATCH -N 1\n#SBATCH --ntasks-per-node=8\nsrun python t.py\n",
        "--procs-per-node 8 t.py",
    ),
    "booking": (
        "#!/bin/bash\n#SBATCH -p gpu\n#SBATCH -A nlp -t 1-12:00:00\n#SBATCH -J my.run -q high\n#SBATCH --mail-user=a@b.c\npython t.py\n",
        "--time 36h -p gpu -A nlp --qos high --mail a@b.c --name my.run t.py",
    ),
    "cpus and memory": (
        f"{HEAD.replace('node=1', 'node=4')}#SBATCH -c 8\n#SBATCH --mem-per-cpu=4G\n{SRUN} python t.py\n",
        "-N 2 -g 4 --cpus 32 --mem 128G t.py",
    ),
    "other options": (
        f"{HEAD}#SBATCH --exclusive\n#SBATCH --switches=1\n#SBATCH --gres=gpu:4,nvme:100\n{SRUN} torchrun t.py\n".replace(
            "#SBATCH --gpus-per-node=4\n", ""
        ),
        "-N 2 -g 4 --slurm exclusive --slurm switches=1 --slurm gres=nvme:100 t.py",
    ),
    "type of GPU": (
        "#!/bin/bash\n#SBATCH --gres=gpu:a100:2\ntorchrun --nproc-per-node=2 t.py\n",
        "-g 2 --gpu-type a100 t.py",
    ),
    "environment": (
        f"{HEAD}module load cuda/12 gcc\nsource .venv/bin/activate\nexport A=1 B='x y'\n{SRUN} torchrun t.py\n",
        "-N 2 -g 4 --modules cuda/12 --modules gcc --venv .venv --set A=1 --set B='x y' t.py",
    ),
    "conda": (
        f"{HEAD}source ~/conda/etc/profile.d/conda.sh\nconda activate dl\n{SRUN} torchrun t.py\n",
        "-N 2 -g 4 --conda dl t.py",
    ),
    "container": (
        f"{HEAD}{SRUN} apptainer exec --nv -B /data /img/t.sif torchrun t.py\n",
        "-N 2 -g 4 --image /img/t.sif --mount /data:/data t.py",
    ),
    "pyxis": (
        f"{HEAD}{SRUN} --container-image=/i.sqsh --container-mounts=/a:/b torchrun t.py\n",
        "-N 2 -g 4 --image /i.sqsh --env pyxis --mount /a:/b t.py",
    ),
    "accelerate": (
        f"{HEAD}{SRUN} accelerate launch --num_machines 2 --mixed_precision bf16 t.py\n",
        "-N 2 -g 4 --launcher accelerate --launcher-option mixed_precision=bf16 t.py",
    ),
    "legacy": (
        f"{HEAD}{SRUN} python -m torch.distributed.launch --nproc_per_node=4 t.py\n",
        "-N 2 -g 4 --launcher legacy t.py",
    ),
    "notice and requeue": (
        f"{HEAD}#SBATCH -t 2:00:00\n#SBATCH --signal=B:USR1@300\n#SBATCH --requeue\n{SRUN} torchrun t.py\n",
        "-N 2 -g 4 --time 2h --notice 5m --requeues 10 t.py",
    ),
    "values of the login shell": (
        f"{HEAD}D=$HOME/data\n{SRUN} torchrun $D/t.py --d $D\n",
        '-N 2 -g 4 "$HOME/data/t.py" --d "$HOME/data"',
    ),
    "even split": (
        "#!/bin/bash\n#SBATCH -N 2\n#SBATCH -n 4\n#SBATCH --gpus-per-task=1\nsrun python t.py\n",
        "-N 2 -g 2 t.py",
    ),
    "nodes that follow from tasks": (
        "#!/bin/bash\n#SBATCH -n 4\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-task=1\nsrun uv run python t.py\n",
        "-N 2 -g 2 -- uv run python t.py",
    ),
    "tasks and GPUs of srun": (
        "#!/bin/bash\n#SBATCH -N 4\nsrun -n$((SLURM_JOB_NUM_NODES*8)) -c7 --gpus-per-task=1 python t.py\n",
        "-N 4 -g 8 --cpus 56 t.py",
    ),
    "one process for all GPUs": ("#!/bin/bash\n#SBATCH --gres=gpu:2\npython t.py\n", "-g 2 --procs-per-node 1 t.py"),
    "list of variables": (
        f"{HEAD}export d0=/d/a\nexport d1=/d/b\nexport d2=/d/c\n{SRUN} torchrun t.py --list=$d0,$d1,$d2\n",
        "-N 2 -g 4 --set d0=/d/a --set d1=/d/b --set d2=/d/c t.py --list=/d/a,/d/b,/d/c",
    ),
    "default of a variable": (
        f'{HEAD}: "${{IMAGE:=/apps/t.sqsh}}"\n{SRUN} --container-image $IMAGE torchrun t.py\n',
        '-N 2 -g 4 --image "${IMAGE:-/apps/t.sqsh}" --env pyxis t.py',
    ),
    "another program": (
        f"{HEAD}{SRUN} uv run orion hunt --config conf.yml python t.py --lr 1\n",
        "-N 2 -g 4 --procs-per-node 1 -- uv run orion hunt --config conf.yml python t.py --lr 1",
    ),
    "launcher in uv": (
        f"{HEAD}{SRUN} uv run torchrun --nproc-per-node=4 -m pkg.train\n",
        "-N 2 -g 4 -- uv run python -m pkg.train",
    ),
    "option without its value": (
        f"{HEAD}{SRUN} python t.py --local_rank $SLURM_LOCALID --lr 1\n",
        "-N 2 -g 4 --procs-per-node 1 t.py --lr 1",
    ),
    "numbers of the request": (f"{HEAD}{SRUN} torchrun t.py --nodes $SLURM_NNODES\n", "-N 2 -g 4 t.py --nodes 2"),
    "folder of the job": (
        f"{HEAD}{SRUN} torchrun t.py --d $SLURM_SUBMIT_DIR/data --o ~/out\n",
        '-N 2 -g 4 t.py --d "$PWD/data" --o ~/out',
    ),
    "values of the node": (
        f"{HEAD}export PATH=/opt/x/bin:$PATH\n{SRUN} torchrun t.py\n",
        "-N 2 -g 4 --setup 'export PATH=/opt/x/bin:$PATH' t.py",
    ),
    "variables for the command": (
        f"{HEAD}B=2\nexport B\nA=1 {SRUN} env C=3 torchrun t.py\n",
        "-N 2 -g 4 --set B=2 --set A=1 --set C=3 t.py",
    ),
    "types of mail": (
        "#!/bin/bash\n#SBATCH -n 1 -c 40\n#SBATCH --mail-type=begin\n#SBATCH --mail-type=end\nsrun torchrun t.py\n",
        "--cpus 40 --mail-type begin,end t.py",
    ),
    "installation of conda": (
        f"{HEAD}source /opt/conda/bin/activate\nconda activate dl\nulimit -n 4096\n{SRUN} torchrun t.py\n",
        "-N 2 -g 4 --setup 'source /opt/conda/bin/activate' --conda dl --setup 'ulimit -n 4096' t.py",
    ),
    "not a module": (f"{HEAD}ml purge\nml cuda\n{SRUN} torchrun t.py\n", "-N 2 -g 4 --modules cuda t.py"),
    "array": ("#!/bin/bash\n#SBATCH --array=0-9%2\npython t.py\n", "--array 0-9%2 t.py"),
}
CHUNKS = """\
#!/bin/bash
#PBS -l select=2:ncpus=16:ngpus=4:mem=64gb:system=x
#PBS -l walltime=02:30:00
#PBS -q gpu
#PBS -P ab12
#PBS -N my_run
mpiexec torchrun --nproc-per-node=4 t.py
"""
PBS_CASES = {
    "chunks": (
        CHUNKS,
        "-N 2 -g 4 --cpus 16 --mem 64G --pbs chunk.system=x --time 150m -p gpu -A ab12 --name my_run t.py",
    ),
    "gadi": (
        "#!/bin/bash\n#PBS -q gpuvolta\n#PBS -l ncpus=96,ngpus=8,mem=200GB\n#PBS -l storage=gdata/ab12\ntorchrun --nproc-per-node=4 t.py\n",
        "--site gadi -N 2 -g 4 --mem 100G -p gpuvolta --pbs storage=gdata/ab12 t.py",
    ),
    "processes of mpiexec": (
        "#!/bin/bash\n#PBS -l select=2:ncpus=64:mpiprocs=64\nmpiexec -n 128 -ppn 64 python t.py\n",
        "-N 2 --cpus 64 --procs-per-node 64 t.py",
    ),
    "processes of the chunk": (
        "#!/bin/bash\n#PBS -l select=2:ncpus=8:mpiprocs=8\nmpirun --hostfile h -x A -x B=1 python t.py\n",
        "-N 2 --cpus 8 --procs-per-node 8 --set B=1 t.py",
    ),
    "torque": (
        "#!/bin/bash\n#PBS -l nodes=1:ppn=8:gpus=2\n#PBS -m abe\n#PBS -M a@b.c\npython t.py\n",
        "-g 2 --cpus 8 --mail a@b.c --mail-type FAIL,BEGIN,END --procs-per-node 1 t.py",
    ),
}


@pytest.mark.parametrize(("text", "expected"), [*CASES.values(), *PBS_CASES.values()], ids=[*CASES, *PBS_CASES])
def test_replacing_command(text, expected):
    assert command(text) == expected


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    for name in (
        "t.py",
        "main.py",
        "training_script.py",
        "distributed_sampling_multinode.py",
        "my_huggingface_trainer.py",
    ):
        (folder / name).touch()
    (folder / "data").mkdir()
    (folder / "data" / "t.py").touch()
    (folder / "pkg").mkdir()
    (folder / "pkg" / "train.py").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    return folder


def render(folder, words, where):
    environ = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder), "USER": "someone"}
    environ |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    text = " ".join(words).replace(
        "echelon run", f"exec {shlex.quote(sys.executable)} -m echelon render --on {where}", 1
    )
    return subprocess.run(["bash", "-c", text], cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", [text for text, _ in CASES.values()], ids=CASES)
def test_command_for_slurm_can_be_rendered(folder, text):
    done = render(folder, replacement(text).command, "slurm")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=" in done.stdout


@pytest.mark.parametrize("text", [text for text, _ in PBS_CASES.values()], ids=PBS_CASES)
def test_command_for_pbs_can_be_rendered(folder, text):
    done = render(folder, replacement(text).command, "pbs")
    assert done.returncode == 0, done.stderr
    assert "#PBS " in done.stdout


def test_commands_of_the_tutorials_can_be_rendered(folder):
    """Their paths are those of other machines, so the last one is replaced."""
    for found in lint_files([str(path) for path in sorted(TUTORIALS.glob("*.txt"))], []).replacements:
        words = [word if "/scratch/" not in word else ".venv" if "Venv" in word else "t.py" for word in found.command]
        where = "pbs" if "gadi" in words else "slurm"
        done = render(folder, words, where)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"


MISSING = {
    "secret": ("export WANDB_API_KEY=x", "line 5: WANDB_API_KEY: export it in the shell that you submit from"),
    "value of the job": ("export OUT=/tmp/$SLURM_JOB_ID", "line 5: export OUT=/tmp/$SLURM_JOB_ID"),
    "folder": ("cd /data/project", "line 5: cd /data/project: type the command in that folder"),
    "second program": ("python prepare.py", "line 5: python prepare.py (a run starts one program)"),
    "computed in the job": (
        'let half=$(wc -l <f)/2\nexport HINTS="n=${half}"',
        'line 6: export HINTS="n=${half}"',
    ),
    "value to fill in": ("conda activate /w/<username>/x", "line 5: conda activate /w/<username>/x"),
    "module that is unloaded": ("module unload cuda", "line 5: module unload cuda"),
    "under a condition": (
        'if [ -n "$A" ]; then module load cuda; fi',
        "line 5: module load cuda, which the script runs under a condition",
    ),
    "program that is not Python": ("lm_eval --model hf", "line 5: lm_eval --model hf (a run starts one program)"),
    "module path": ("module use /opt/m", "line 5: module use: set MODULEPATH in the shell that you submit from"),
}


@pytest.mark.parametrize(("line", "note"), MISSING.values(), ids=MISSING)
def test_lost_options_are_listed(line, note):
    assert replacement(f"{HEAD}{line}\n{SRUN} torchrun t.py\n").missing == (note,)


def test_arguments_that_exist_only_in_the_job_are_listed():
    found = replacement(f'{HEAD}{SRUN} torchrun t.py --id $SLURM_JOB_ID "$@"\n')
    assert found.command[-2:] == ("4", "t.py")
    assert found.missing == (
        "line 5: the argument --id $SLURM_JOB_ID: its value is known only in the job",
        "line 5: the arguments of the script ($@): type them at the end",
    )


UNCLEAR = {
    "script in front": (
        "srun bash tools/box.sh bash -c 'export A=$PWD; python t.py'",
        "line 5: bash tools/box.sh starts the program, and what it sets up is not known",
    ),
    "container": (
        "srun docker exec box python t.py",
        "line 5: docker exec box starts the program, and what it sets up is not known",
    ),
    "image of the job": (
        "I=$(cat image)\nsrun --container-image $I python t.py",
        "line 6: the container image $(cat image) is known only in the job",
    ),
    "several programs": (
        "srun python train.py\nsrun python convert.py",
        "line 6: the script starts train.py and convert.py; use one run for each",
    ),
    "loop": (
        "for lr in 1 2; do srun python t.py --lr $lr; done",
        "line 5: t.py is started several times; use one run, or an index of --array, for each",
    ),
    "value without an option": (
        "srun torchrun t.py $SLURM_JOB_ID out",
        "line 5: the argument $SLURM_JOB_ID is known only in the job",
    ),
    "at the same time": (
        "srun -n1 serve --model m &\nsrun torchrun t.py &\nwait",
        "line 5: serve --model m runs at the same time; a run starts one program",
    ),
    "first node only": ("python t.py", "line 5: Python starts on the first of 2 nodes only"),
}


@pytest.mark.parametrize(("line", "reason"), UNCLEAR.values(), ids=UNCLEAR)
def test_no_command_is_printed_if_it_would_be_a_guess(line, reason):
    found = replacement(f"{HEAD}{line}\n")
    assert (found.command, found.missing) == (None, (reason,))


def test_computed_value_in_a_string_stays_one_word():
    text = f'{HEAD}N=$((SLURM_X - 1))\nCMD="torchrun --nproc-per-node $((N * 8)) t.py --id $(date +%s)"\n{SRUN} bash -c "$CMD"\n'
    found = replacement(text)
    assert found.command[2:] == ("-N", "2", "-g", "4", "t.py")
    assert "line 7: the argument --id $(date +%s): its value is known only in the job" in found.missing
    assert not any("\ue000" <= sign <= "\ue200" for note in found.missing for sign in note)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("mpirun -n 2 python t.py", "line 5: mpirun: if the program uses MPI, add --launcher mpirun"),
        ("srun --mpi=pmix python t.py", "line 5: the start by srun: if the program uses MPI, add --launcher srun"),
    ],
)
def test_program_that_may_use_mpi_is_noted(line, note):
    assert replacement(f"{HEAD}{line}\n").missing == (note,)


def test_python_beside_another_program_is_not_the_job():
    found = replacement("#!/bin/bash\n#SBATCH -n 1\nserve --model m\npip install x\npython upload.py\n")
    assert found.missing == ("line 3: the script starts serve --model m and upload.py; use one run for each",)


def test_number_of_threads_is_carried_over_if_it_is_fixed():
    start = f"{SRUN} torchrun t.py\n"
    assert command(f"{HEAD}export OMP_NUM_THREADS=4\n{start}") == "-N 2 -g 4 --set OMP_NUM_THREADS=4 t.py"
    assert command(f"{HEAD}export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\n{start}") == "-N 2 -g 4 t.py"


def test_variable_from_outside_is_named():
    found = replacement(f"{HEAD}{SRUN} torchrun t.py --data $CORPUS\n")
    assert found.command[-2:] == ("--data", '"$CORPUS"')
    assert found.missing == ("the value of $CORPUS: set it in the shell that you submit from",)


def test_script_on_the_nodes_is_followed():
    task = script("#!/bin/bash\nconda activate dl\ntorchrun --nproc-per-node=4 t.py --x 1\n").source
    text = f"{HEAD}MASTER_ADDR=$HOSTNAME\n{SRUN} bash ./task.sh $MASTER_ADDR\n"
    assert command(text, companions={"task.sh": task}) == "-N 2 -g 4 --conda dl t.py --x 1"
    assert replacement(text).command is None
    assert "does not show which Python script it runs" in replacement(text).missing[0]


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\ntorchrun t.py\n",
        f"{HEAD}echo hi\n",
        f"{HEAD}srun ./solver in.dat\n",
        f"{HEAD}exec python -I /runs/a/echelon.pyz supervise /runs/a\n",
    ],
    ids=["no directives", "no launch", "not python", "made by echelon"],
)
def test_other_scripts_have_no_replacement(text):
    assert replacement(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400), ("0", None), ("infinite", None)],
)
def test_time_limits_of_slurm(text, seconds):
    found = parse_slurm_time(text)
    assert (found.total_seconds() if found else None) == seconds


@pytest.mark.parametrize(
    ("text", "factor", "size"), [("16G", 2, "32G"), ("500m", 1, "500M"), ("16Go", 1, "16G"), ("x", 1, None)]
)
def test_memory_per_node(text, factor, size):
    assert scaled_memory(text, factor) == size


def test_nothing_that_echelon_sets_is_passed_unchanged():
    assert NATIVE.isdisjoint(SET_FOR_SLURM)
    for text, _ in PBS_CASES.values():
        words = shlex.split(command(text))
        native = [words[i + 1].partition("=")[0] for i, word in enumerate(words) if word == "--pbs"]
        assert not set(native) & SET_FOR_PBS.keys()
