"""A plain script that starts a launcher on each of some hosts over ssh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from echelon.command import quoted
from echelon.job import Job
from echelon.plain.entering import node_function
from echelon.plain.failing import RANK, ending
from echelon.plain.launchers import launch
from echelon.plain.meeting import port_lines
from echelon.plain.once_more import AGAIN, once_more
from echelon.plain.opening import heading, names, variables
from echelon.plain.together import OWN_STATE, START, waiting

WATCH = (
    "# On the host, reading from us: a word is the notice, silence the end of the ranks (ssh would let them run on).",
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


def lines(job: Job, environ: Mapping[str, str]) -> Iterator[str]:
    yield from heading(job, "Run it: bash FILE")
    yield from variables(job, "export {name} first")
    yield f"hosts={_array(job.hosts[: job.resources.nodes])}"
    yield "ssh=(ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=3)"
    yield "# Ranks meet at the first host, at the address that it was reached at."
    yield 'read -r _ _ MASTER_ADDR _ < <("${ssh[@]}" "${hosts[0]}" \'echo "$SSH_CONNECTION"\') || exit'
    yield from port_lines(job, "$$")
    yield from OWN_STATE
    yield from RANK
    yield from node_function(job, *launch(job, environ, prefix=("exec",)), folder=job.cwd)
    yield from WATCH
    yield from _feed(job)
    yield from START
    yield 'for n in "${!hosts[@]}"; do start "${ssh[@]}" "${hosts[n]}" bash -s < <(feed "$n") & done'
    yield ending(job, "INT TERM HUP", "note 143", 'touch "$JOB_STATE/stop"')
    yield from waiting(job, until_the_limit=True)
    yield from once_more(job, "${TRIES:-0}", AGAIN)


def _feed(job: Job) -> Iterator[str]:
    carried = " ".join(["MASTER_ADDR", "MASTER_PORT", *names(job), *job.secret_env])
    yield "# What a host reads: all it needs, for in arguments others would see it; then a line a second while we live."
    yield "feed() {"
    yield f'  declare -px {carried} && declare -f note rank node watch && echo "export -f note rank; watch $1"'
    yield '  while kill -0 $$ && [ ! -e "$JOB_STATE/stop" ]; do'
    yield '    if [ -e "$JOB_STATE/notice" ]; then echo notice; else echo; fi && sleep 1 || exit'
    yield "  done 2>/dev/null"
    yield "}"


def _array(words: Sequence[str]) -> str:
    return f"({' '.join(map(quoted, words))})"
