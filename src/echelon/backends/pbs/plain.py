"""A plain job script for PBS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from echelon.backends.pbs.script import ARRAY_INDEX, directive, directives, index_range, single_index
from echelon.backends.plain import (
    RANK_FUNCTIONS,
    START_FUNCTION,
    STATE_FOLDER,
    heading_lines,
    launch_and_watch_lines,
    node_function,
    rendezvous_lines,
    rerun_lines,
    signal_trap,
    variable_lines,
    variable_names,
    wait_lines,
)
from echelon.errors import ConfigError
from echelon.job import Job
from echelon.run_dir import RunDir
from echelon.shell import quote_word, quote_words


def script_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    _refuse_requeues_of_an_array(job)
    yield from heading_lines(job, f"Submit it: {_qsub_command(job)}")
    yield from (directive(letter, value) for letter, value in plain_directives(job))
    index = single_index(job.booking.array)
    if index is not None:
        yield f"export {ARRAY_INDEX}={index}"
    yield f"{quote_words('cd', job.cwd)} || exit # PBS starts in the home folder"
    yield "export PATH=$PATH:${PBS_O_PATH-} # PBS sets a short PATH: add that of the shell that ran qsub"
    yield from variable_lines(job, "qsub -v {name} passes it (qstat shows it)")
    yield "# The file has a line per process; keep each host once. Ranks meet at the first, where this script runs."
    yield f"mapfile -t hosts < <(awk '!seen[$0]++' \"$PBS_NODEFILE\") && first=${{hosts[0]}} id={_job_number(job)}"
    yield from rendezvous_lines(job, "id")
    yield 'export JOB_STATE=$PWD/.job-$id # a file "notice" appears here before the time limit'
    yield from STATE_FOLDER
    yield from RANK_FUNCTIONS
    yield from node_function(job, *launch_and_watch_lines(job, environ), folder=job.cwd)
    yield "# Tasks of PBS do not inherit variables and functions: they read them from a file."
    carried = " ".join(["PATH", "MASTER_ADDR", "MASTER_PORT", "JOB_STATE", *variable_names(job)])
    there = quote_word('export -f note rank && node "$1"')
    yield f'{{ declare -px {carried} && declare -f note rank node && echo {there}; }} >"$JOB_STATE/node.sh"'
    yield from START_FUNCTION
    yield 'for n in "${!hosts[@]}"; do start pbs_tmrsh "${hosts[n]}" /bin/bash "$JOB_STATE/node.sh" "$n" & done'
    yield signal_trap(job, "TERM")
    yield from wait_lines(job, until_the_limit=False)
    yield from rerun_lines(job, "${TRIES:-0}", _resubmit_command(job))


def _refuse_requeues_of_an_array(job: Job) -> None:
    if index_range(job.booking.array) is not None and job.policies.requeues:
        raise ConfigError(
            "a plain script for a PBS array cannot requeue",
            origin=f"--plain, --array {job.booking.array}, --requeues {job.policies.requeues}",
            why="submitting the script again would submit the whole array again",
            hint="omit --requeues or --plain",
        )


def _job_number(job: Job) -> str:
    """A shell expression for a unique number of the job or of the array element."""
    number = "${PBS_JOBID%%[!0-9]*}"
    return number if index_range(job.booking.array) is None else f"$(({number} * 100000 + PBS_ARRAY_INDEX))"


def _qsub_command(job: Job) -> str:
    secrets = ",".join(job.secret_env)
    return f"qsub -v {secrets} FILE" if secrets else "qsub FILE"


def _resubmit_command(job: Job) -> str:
    """Submits the same script again, to start after this job. Users may not requeue jobs on PBS."""
    carried = ",".join(("TRIES=$((${TRIES:-0} + 1))", *job.secret_env))
    return f'qsub -W "depend=afterany:$PBS_JOBID" -v "{carried}" "$0"'


def plain_directives(job: Job) -> Iterator[tuple[str, str]]:
    alone = replace(job, resources=replace(job.resources, spare_nodes=0, min_nodes=None))
    for letter, value in directives(alone, RunDir(Path(job.cwd))):
        if letter != "S" and value != "/dev/null":  # PBS could misread the path, so its default is used
            yield letter, value
    yield "S", "/bin/bash"
