"""A plain script that starts a launcher on each host over ssh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from echelon.backends.plain import (
    RANK_FUNCTIONS,
    RERUN_SCRIPT,
    START_FUNCTION,
    TEMPORARY_STATE,
    heading_lines,
    launch_lines,
    node_function,
    port_lines,
    rerun_lines,
    signal_trap,
    variable_lines,
    variable_names,
    wait_lines,
)
from echelon.job import Job
from echelon.shell import quote_word

WATCH_FUNCTION = (
    "# Runs on each host. A word from feed is the notice. After 30 s without a line it ends the ranks: ssh would not.",
    "watch() {",
    "  JOB_STATE=$(mktemp -d) && export JOB_STATE && exec 3<&0 || exit",
    '  node "$1" </dev/null 3<&- & ranks=$!',
    (
        '  { while read -r -t 30 word; do [ -z "$word" ] || touch "$JOB_STATE/notice"; done; '
        'kill "$ranks"; } <&3 &>/dev/null &'
    ),
    '  wait "$ranks"; code=$?; [ ! -s "$JOB_STATE/code" ] || code=$(cat "$JOB_STATE/code")',
    '  kill $!; rm -rf "$JOB_STATE"; exit "$code"',
    "}",
)


def script_lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    yield from heading_lines(job, "Run it: bash FILE")
    yield from variable_lines(job, "export {name} first")
    yield f"hosts={_bash_array(job.hosts[: job.resources.nodes])}"
    yield "ssh=(ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3)"
    yield "# Ranks meet at the first host, at the address at which this machine reaches it."
    yield 'read -r _ _ MASTER_ADDR _ < <("${ssh[@]}" "${hosts[0]}" \'echo "$SSH_CONNECTION"\') || exit'
    yield from port_lines(job, "$$")
    yield from TEMPORARY_STATE
    yield from RANK_FUNCTIONS
    yield from node_function(job, *launch_lines(job, environ, prefix=("exec",)), folder=job.cwd)
    yield from WATCH_FUNCTION
    yield from _feed_lines(job)
    yield from START_FUNCTION
    yield 'for n in "${!hosts[@]}"; do start "${ssh[@]}" "${hosts[n]}" bash -s < <(feed "$n") & done'
    yield signal_trap(job, "INT TERM HUP", "note 143", 'touch "$JOB_STATE/stop"')
    yield from wait_lines(job, until_the_limit=True)
    yield from rerun_lines(job, "${TRIES:-0}", RERUN_SCRIPT)


def _feed_lines(job: Job) -> Iterator[str]:
    carried = " ".join(["MASTER_ADDR", "MASTER_PORT", *variable_names(job), *job.secret_env])
    yield "# Prints what a host needs (other users could see arguments), then a line per second while this script runs."
    yield "feed() {"
    yield f'  declare -px {carried} && declare -f note rank node watch && echo "export -f note rank; watch $1"'
    yield '  while kill -0 $$ && [ ! -e "$JOB_STATE/stop" ]; do'
    yield '    if [ -e "$JOB_STATE/notice" ]; then echo notice; else echo; fi && sleep 1 || exit'
    yield "  done 2>/dev/null"
    yield "}"


def _bash_array(words: Sequence[str]) -> str:
    return f"({' '.join(map(quote_word, words))})"
