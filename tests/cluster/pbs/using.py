"""The stand-in PBS as the user of the test cluster has it."""

from node import wait_for

GONE_SECONDS = 2  # after a run's last word


def use(echelon, server):
    echelon.env |= {"ECHELON_ON": "pbs", "PATH": f"{server.bin}:{server.cluster.environ()['PATH']}"}


def nothing_runs(cluster):
    """Everything of ours has left every host, soon after the run's last word."""
    wait_for(lambda: not cluster.leftovers(), f"{cluster.leftovers()} to be gone", GONE_SECONDS)


def qsub(server, folder, text, *options):
    """A job that is not echelon's; its id."""
    script = folder / "plain.sh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    path = {"PATH": f"{server.bin}:{server.cluster.environ()['PATH']}"}
    argv = ["qsub", "-l", "select=1:ncpus=1", *options, script]
    return server.cluster.run("ctl", argv, cwd=folder, env=path).stdout.strip()
