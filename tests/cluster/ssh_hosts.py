"""Helpers for tests of `--on ssh`: hosts, and the processes on them."""

import sys

from node import wait_for
from running import SCRIPTS

STEPS = SCRIPTS / "steps.py"  # the checkout is at the same place on every host; the user's files are not
LONG = ("--steps", "3000", "--seconds", "0.1")


def on(hosts, *flags):
    return ("--on", "ssh", "--hosts", hosts, "--python", sys.executable, *flags)


def two_by_two(*flags):
    return on("h1,h2", "-g", "2", "--cold", *flags)


def processes_on(cluster, *hosts):
    """The processes of each host, except those of sshd."""
    return {host: left for host in hosts if (left := cluster.nodes[host].leftovers())}


def wait_for_steps(run, rank, step=2, generation=0):
    wait_for(lambda: f"generation {generation} step {step}\n" in run.rank_log(rank), f"rank {rank} to take steps", 40)


def gone_within(cluster, seconds, *hosts):
    wait_for(lambda: not processes_on(cluster, *hosts), f"nothing to run on {hosts}", seconds)


def clients(cluster, host):
    return [
        p for p in cluster.leftovers().get("ctl", []) if p.command.startswith("ssh ") and f"-- {host} " in p.command
    ]


def agents_on(cluster, host):
    return [p for p in cluster.leftovers().get(host, []) if " remote " in p.command]


def supervisor_of(cluster):
    (found,) = [p for p in cluster.leftovers()["ctl"] if " supervise " in p.command]
    return found.pid
