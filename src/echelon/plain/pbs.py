"""A plain job script for PBS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.command import quoted, words
from echelon.job import Job
from echelon.plain.entering import node_function
from echelon.plain.failing import RANK, ending
from echelon.plain.meeting import head_lines
from echelon.plain.once_more import once_more
from echelon.plain.opening import heading, names, variables
from echelon.plain.together import START, STATE_FOLDER, launch_and_watch, waiting
from echelon.run_dir import RunDir
from echelon.schedulers.pbs_script import directive, directives


def lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    yield from heading(job, f"Submit it: {_qsub(job)}")
    yield from (directive(letter, value) for letter, value in asked(job))
    yield f"{words('cd', job.cwd)} || exit # PBS starts us at home"
    yield "export PATH=$PATH:${PBS_O_PATH-} # and with little in it: that of the shell where qsub was typed"
    yield from variables(job, "qsub -v {name} brings it (and qstat shows it)")
    yield "# The file has a line for each process: each host once. Ranks meet at the first, where this script runs."
    yield "mapfile -t hosts < <(awk '!seen[$0]++' \"$PBS_NODEFILE\") && first=${hosts[0]} id=${PBS_JOBID%%[!0-9]*}"
    yield from head_lines(job, "id")
    yield 'export JOB_STATE=$PWD/.job-$id # ranks find "notice" in it when they should stop soon'
    yield from STATE_FOLDER
    yield from RANK
    yield from node_function(job, *launch_and_watch(job, environ), folder=job.cwd)
    yield "# Tasks of PBS get none of our variables and functions: they read them from a file."
    carried = " ".join(["PATH", "MASTER_ADDR", "MASTER_PORT", "JOB_STATE", *names(job)])
    there = quoted('export -f note rank && node "$1"')
    yield f'{{ declare -px {carried} && declare -f note rank node && echo {there}; }} >"$JOB_STATE/node.sh"'
    yield from START
    yield 'for n in "${!hosts[@]}"; do start pbs_tmrsh "${hosts[n]}" /bin/bash "$JOB_STATE/node.sh" "$n" & done'
    yield ending(job, "TERM")
    yield from waiting(job, until_the_limit=False)
    yield from once_more(job, "${TRIES:-0}", _again(job))


def _qsub(job: Job) -> str:
    secrets = ",".join(job.secret_env)
    return f"qsub -v {secrets} FILE" if secrets else "qsub FILE"


def _again(job: Job) -> str:
    """Users may not requeue on PBS: the same script is submitted again, to follow this job."""
    carried = ",".join(("TRIES=$((${TRIES:-0} + 1))", *job.secret_env))
    return f'qsub -W "depend=afterany:$PBS_JOBID" -v "{carried}" "$0"'


def asked(job: Job) -> Iterator[tuple[str, str]]:
    alone = replace(job, resources=replace(job.resources, spare_nodes=0, min_nodes=None))
    for letter, value in directives(alone, RunDir(Path(job.cwd))):
        if letter != "S" and value != "/dev/null":  # where PBS could misread the path, its own choice has to do
            yield letter, value
    yield "S", "/bin/bash"
