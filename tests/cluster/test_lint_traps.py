"""Every error of `echelon lint` fails on a real cluster, and the corrected script works.

All scripts are submitted at once, by hand, as their users would: nothing of echelon runs on the nodes. torchrun is a
stand-in that prints what it was given, except where its rendezvous is the point.
"""

import os
import re
import shlex

import pytest

from echelon.lint.check import check_script
from echelon.lint.migrate.command import find_replacement
from echelon.lint.rules import RULES
from echelon.lint.script import JobScript, Source
from folder import UID
from lint_twins import KEY, LASTS_TEXT, MEET, SAVES_TEXT, TORCHRUN, TWINS, Outcome
from node import wait_for
from pbs.using import qsub


class Hand:
    """A user of the cluster who submits scripts by hand."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.folder = cluster.make_folder()
        path = cluster.environ()["PATH"]
        self.env = {
            "PATH": f"{self.folder / 'bin'}:{path}",
            "REAL": f"{path.partition(':')[0]}/torchrun",
            "PYTHONPATH": "",
        }
        (self.folder / "bin").mkdir()
        for name, text in {
            "bin/torchrun": TORCHRUN,
            "meet.py": MEET,
            "fail.py": "raise SystemExit(3)\n",
            "saves.py": SAVES_TEXT,
            "lasts.py": LASTS_TEXT,
            "secrets": f"export WANDB_API_KEY={KEY}\n",
        }.items():
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def run(self, *argv, **options):
        return self.cluster.run("ctl", argv, cwd=self.folder, env=self.env, **options)

    def submit(self, number, text):
        """The id of the job, or the error of sbatch."""
        script = self.folder / f"{number}.sh"
        script.write_text(text)
        os.chown(script, UID, UID)
        done = self.run("sbatch", "--parsable", "-o", self.folder / f"{number}.out", script, check=False)
        return done.stdout.strip() if done.returncode == 0 else None, done.stderr

    def out(self, number):
        path = self.folder / f"{number}.out"
        return path.read_text() if path.exists() else ""

    def is_over(self, job):
        return not re.search(r"JobState=(PENDING|RUNNING|COMPLETING|CONFIGURING)", self.shown(job))

    def shown(self, job):
        return self.run("scontrol", "show", "job", job).stdout


@pytest.fixture(scope="module")
def outcomes(clusters):
    """Of every script: all run at once. A script that two rules share is submitted once for each signal."""
    hand = Hand(clusters(None))
    texts = dict.fromkeys((text, twin.signal) for twin in TWINS.values() for text in (twin.bad, twin.good))
    jobs = {key: hand.submit(number, key[0]) for number, key in enumerate(texts)}
    for number, (key, (job, _)) in enumerate(jobs.items()):
        if key[1] is not None:
            wait_for(lambda n=number: "ready" in hand.out(n), f"script {number} to be ready", 120)
            options = key[1] or (("--batch",) if "B:" in key[0] else ())
            hand.run("scancel", *options, "--signal=USR1", job)
    found = {}
    for number, (key, (job, said)) in enumerate(jobs.items()):
        if job is None:
            found[key] = Outcome(refused=said)
            continue
        wait_for(lambda j=job: hand.is_over(j), f"script {number} to end: {hand.out(number)}", 180)
        shown = hand.shown(job)
        code = re.search(r"ExitCode=(\S+)", shown)[1]
        script = hand.run("scontrol", "write", "batch_script", job, "-").stdout
        found[key] = Outcome(refused="", code=code, out=hand.out(number), shown=shown + script)
    hand.cluster.remove_debris()  # torchrun never takes its own folders away
    return found


def found_rules(text):
    return {one.rule for one in check_script(JobScript(Source(path="job.sh", text=text)), RULES)}


@pytest.mark.parametrize("rule", TWINS)
def test_script_with_trap_fails_and_corrected_one_works(cluster, outcomes, rule):
    twin = TWINS[rule]
    bad, good = outcomes[twin.bad, twin.signal], outcomes[twin.good, twin.signal]
    assert twin.bites(bad), bad
    assert twin.works(good), good
    lint = (twin.bad.replace("$REAL", "torchrun"), twin.good.replace("$REAL", "torchrun"))
    assert [rule in found_rules(text) for text in lint] == [True, False]


def test_every_error_of_slurm_has_a_twin():
    """PBS has its own below, enroot in test_lint_commands.py."""
    errors = {rule.id for rule in RULES if rule.severity.value == "error"}
    assert errors - TWINS.keys() == {"enroot-variable-not-passed", "pbs-nodeid", "pbs-repeated-hosts"}


PBS = {
    "pbs-nodeid": (
        "for n in 0 1; do pbsdsh -n $n -- /bin/sh -c 'echo \"[$PBS_NODEID]\" >>FOLDER/seen'; done",
        "for n in 0 1; do pbsdsh -n $n -- /bin/sh -c 'echo \"[$PBS_NODENUM]\" >>FOLDER/seen'; done",
        (["[]", "[]"], ["[0]", "[1]"]),
    ),
    "pbs-repeated-hosts": (
        "NNODES=$(wc -l <$PBS_NODEFILE)\necho $NNODES >FOLDER/seen",
        "NNODES=$(sort -u $PBS_NODEFILE | wc -l)\necho $NNODES >FOLDER/seen",
        (["4"], ["2"]),
    ),
}
REQUEST = ("-l", "select=2:ncpus=2:mpiprocs=2", "-l", "place=scatter")


@pytest.mark.parametrize("rule", PBS)
def test_pbs_script_with_trap_fails_and_corrected_one_works(cluster, echelon, pbs, rule):
    *lines, ends = PBS[rule]
    for line, end, is_found in zip(lines, ends, (True, False), strict=True):
        head = f"#!/bin/bash\n#PBS {' '.join(REQUEST)}\n"
        assert (rule in found_rules(f"{head}{line}\n")) is is_found
        text = f"PATH={shlex.quote(echelon.env['PATH'])}\n{line.replace('FOLDER', str(echelon.folder))}"
        qsub(pbs, echelon.folder, text, *REQUEST, "-o", f"{echelon.folder}/")
        wait_for(lambda: not pbs.unfinished(), "the job to end", 60)
        assert (echelon.folder / "seen").read_text().split() == end
        (echelon.folder / "seen").unlink()


RANKS = """
import os

print("rank", os.environ["SLURM_PROCID"], "of", os.environ["SLURM_NTASKS"], flush=True)
"""


def test_suggested_command_does_the_same_job(cluster, echelon):
    echelon.script("ranks.py", RANKS)
    text = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=2\n#SBATCH --gpus-per-node=2\nsrun python ranks.py\n"
    by_hand = Hand(cluster)
    (by_hand.folder / "ranks.py").write_text(RANKS)
    job, said = by_hand.submit(0, text)
    wait_for(lambda: by_hand.is_over(job), f"the job to end: {said}", 60)
    command = find_replacement(JobScript(Source(path="job.sh", text=text)), {}.get).command
    done = echelon("run", *shlex.split(" ".join(command))[2:])
    assert done.returncode == 0, done.stderr
    ranks = sorted(re.findall(r"rank \d of \d", done.stdout))
    assert ranks == sorted(by_hand.out(0).splitlines()) == [f"rank {rank} of 4" for rank in range(4)]
