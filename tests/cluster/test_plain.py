"""Plain scripts on real nodes, submitted by hand in an environment without echelon."""

import os
import re
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from echelon.backends.plain import render
from echelon.job import Job, LauncherOptions, Policies, Resources, Script, ScriptKind
from folder import UID
from node import wait_for
from pbs.server import Server

PLAIN = Path(__file__).parents[1] / "runtime" / "scripts" / "plain.py"
SUMS = ["rank 0 sum 3.0", "rank 1 sum 3.0"]


class Hand:
    """A user of the cluster with a script in a folder of their own."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.folder = cluster.make_folder()
        self.env = {"PYTHONPATH": "", "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def write(self, scheduler, *args, launcher="torchrun", procs=1, cwd=None, **more):
        job = Job(
            name="gpt",
            script=Script(kind=ScriptKind.FILE, target=str(PLAIN), args=tuple(map(str, args))),
            cwd=str(cwd or self.folder),
            python=sys.executable,
            scheduler=scheduler,
            launcher=launcher,
            resources=Resources(nodes=2, procs_per_node=procs, cpus=2, time_limit=more.pop("limit", None)),
            **more,
        )
        path = self.folder / "gpt.sh"
        path.write_text(render(job, self.env))
        path.chmod(0o755)
        os.chown(path, UID, UID)
        return path

    def run(self, *argv, **options):
        return self.cluster.run("ctl", argv, cwd=self.folder, env={**self.env, **options.pop("env", {})}, **options)

    def output(self):
        return "".join(path.read_text() for path in self.folder.glob("gpt-*.out"))

    def state(self, job):
        shown = self.run("scontrol", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def ended(self, job):
        wait_for(lambda: self.state(job)["JobState"] in ("COMPLETED", "FAILED", "CANCELLED"), "the job to end", 120)
        return self.state(job)


@pytest.fixture
def hand(cluster):
    mine = Hand(cluster)
    yield mine
    wait_for(lambda: not cluster.leftovers(), "every process to be gone", 20)
    for name, paths in cluster.debris().items():  # torch never takes its own folders away
        cluster.run(name, ["rm", "-rf", *(p for p in paths if p.name.startswith("torchinductor_"))], user="root")
    assert list(mine.folder.glob(".job-*")) == [], "the script's own folder"


def sums(text):
    return sorted(line.partition(" local")[0] for line in text.splitlines() if " sum " in line)


# Slurm


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "srun"])
def test_on_slurm_two_nodes_train_together(hand, launcher):
    script = hand.write("slurm", "--lr", "it's $HOME", launcher=launcher, procs=2, env={"NASTY": "a 'b' $c"})
    job = hand.run("sbatch", "--parsable", script).stdout.strip()
    assert hand.ended(job)["ExitCode"] == "0:0", hand.output()
    assert sums(hand.output()) == [f"rank {rank} sum 10.0" for rank in range(4)]
    assert """['--lr', "it's $HOME"] "a 'b' $c\"""" in hand.output()


def test_on_slurm_the_code_of_the_failing_rank_is_the_jobs(hand):
    script = hand.write("slurm", "--do", "fail", "--who", "1", "--code", "7", policies=Policies(requeues=3))
    job = hand.run("sbatch", "--parsable", script).stdout.strip()
    assert hand.ended(job)["ExitCode"] == "7:0", hand.output()


@pytest.mark.parametrize(("starts", "code"), [(2, "0:0"), (3, "75:0")], ids=["one is enough", "one is not enough"])
def test_slurm_notice_causes_exactly_one_requeue(hand, starts, code):
    count = hand.folder / "count"
    words = ("--do", "stop", "--count", count, "--starts", starts)
    job = hand.run("sbatch", "--parsable", hand.write("slurm", *words, policies=Policies(requeues=1))).stdout.strip()
    for start in range(1, starts):
        wait_for(lambda n=start: count.exists() and count.read_text() == str(n), f"start {start}", 60)
        hand.run("scancel", "--batch", "--signal=USR1", job)
    wait_for(lambda: hand.state(job)["Restarts"] == "1", "the requeue", 60)
    assert hand.ended(job)["ExitCode"] == code, hand.output()
    assert hand.output().count("saved") == 2 * (starts - 1), "no rank was cut short"
    assert count.read_text() == "2"


def test_scancel_ends_the_plain_slurm_run(hand):
    script = hand.write("slurm", "--do", "hang", policies=Policies(requeues=3))
    job = hand.run("sbatch", "--parsable", script).stdout.strip()
    wait_for(lambda: hand.output().count("waiting") == 2, "the ranks", 90)
    hand.run("scancel", job)
    assert hand.ended(job)["JobState"] == "CANCELLED"


def test_slurm_c10d_rendezvous_is_at_the_first_node(hand):
    script = hand.write("slurm", launching=LauncherOptions(rdzv="c10d"))
    job = hand.run("sbatch", "--parsable", script).stdout.strip()
    assert hand.ended(job)["ExitCode"] == "0:0", hand.output()
    assert sums(hand.output()) == SUMS
    assert len(set(re.findall(r" at (\d+\.\d+\.\d+\.\d+)$", hand.output(), re.MULTILINE))) == 1, hand.output()
    assert " at 127." not in hand.output()


# PBS


@pytest.fixture
def pbs(cluster, hand):
    with Server(cluster) as server:
        hand.env |= {"PATH": f"{server.bin}:{hand.env['PATH']}", "HF_TOKEN": "s3cr3t"}
        yield server


def test_pbs_run_continues_in_one_successor_only(hand, pbs):
    words = ("--do", "again", "--count", hand.folder / "count", "--starts", "3")
    secret = {"secret_env": ("HF_TOKEN",), "env": {"NASTY": "a 'b' $c"}}
    hand.run("qsub", "-v", "HF_TOKEN", hand.write("pbs", *words, policies=Policies(requeues=1), **secret))
    wait_for(lambda: len(pbs.jobs) == 2 and not pbs.unfinished(), "both jobs to end", 120)
    out = "".join(path.read_text() for path in hand.folder.glob("*.OU"))
    assert [job.exit_status for job in pbs.jobs.values()] == [75, 75], out
    assert sums(out) == sorted(SUMS * 2)
    assert repr("a 'b' $c") in out


def test_pbs_job_exits_with_the_code_of_the_failing_rank(hand, pbs):
    hand.run("qsub", hand.write("pbs", "--do", "fail", "--who", "1", policies=Policies(requeues=1)))
    wait_for(lambda: pbs.jobs and not pbs.unfinished(), "the job to end", 120)
    assert [job.exit_status for job in pbs.jobs.values()] == [7]


# ssh


@pytest.mark.parametrize("launcher", ["torchrun", "legacy"])
def test_ssh_run_exits_with_the_code_of_the_failing_rank(cluster, hand, launcher):
    nasty = {"NASTY": "a 'b'\n$c"}
    script = hand.write("ssh", "--lr", "$HOME", launcher=launcher, cwd="/", hosts=("h1", "h2"), env=nasty)
    done = hand.run("bash", script, check=False, timeout=120)
    assert (done.returncode, sums(done.stdout)) == (0, SUMS), done.stderr
    assert repr("a 'b'\n$c") in done.stdout
    script = hand.write("ssh", "--do", "fail", "--who", "1", launcher=launcher, cwd="/", hosts=("h1", "h2"))
    assert hand.run("bash", script, check=False, timeout=120).returncode == 7


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_ended_ssh_script_leaves_no_processes(cluster, hand, signum):
    script = hand.write("ssh", "--do", "hang", cwd="/", hosts=("h1", "h2"))
    with (hand.folder / "out").open("w") as out:
        process = cluster.popen("ctl", ["bash", script], cwd=hand.folder, env=hand.env, stdout=out, stderr=out)
    wait_for(lambda: Path(out.name).read_text().count("waiting") == 2, "the ranks", 90)
    process.send_signal(signum)
    process.wait(60)
    wait_for(lambda: not any(cluster.nodes[host].leftovers() for host in ("h1", "h2")), "the hosts to be empty", 60)
    if signum == signal.SIGKILL:  # nobody was left to tidy up here; the hosts did so by themselves
        cluster.run("ctl", ["rm", "-rf", *cluster.debris()["ctl"]], user="root")


def test_notice_over_ssh_starts_the_next_attempt(cluster, hand):
    words = ("--do", "stop", "--count", cluster.scratch / "count", "--starts", "2")
    (cluster.scratch / "count").unlink(missing_ok=True)
    policies = Policies(requeues=1, notice=timedelta(seconds=295))
    script = hand.write("ssh", *words, cwd="/", hosts=("h1", "h2"), limit=timedelta(seconds=300), policies=policies)
    done = hand.run("bash", script, check=False, timeout=140)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("saved") == 2
