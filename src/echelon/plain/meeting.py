"""Where the ranks of a plain script meet: an address and a port that no other job has."""

from __future__ import annotations

from collections.abc import Iterator

from echelon.command import words
from echelon.job import Job
from echelon.plan import parse_ports

PORTS = "20000-29999"
"""Below those that Linux gives away by itself."""
FREE_PORT = (
    'while (: <"/dev/tcp/$MASTER_ADDR/$MASTER_PORT") 2>/dev/null; do ((MASTER_PORT += 1)); done # taken: the next one'
)


def port_lines(job: Job, seed: str) -> Iterator[str]:
    """A port for each job, worked out from `seed`."""
    first, last = _range(job)
    yield f"export MASTER_PORT=$(({first} + {seed} % {last - first + 1})) # two jobs on one port would join each other"


def _range(job: Job) -> tuple[int, int]:
    ports = parse_ports(job.ports or PORTS)
    return ports[0], ports[-1]


def head_lines(job: Job, seed: str) -> Iterator[str]:
    """For a script that runs on the first node; `first` is its name."""
    if job.interface is None:
        yield "MASTER_ADDR=$(getent ahostsv4 \"$first\" | awk '$1 !~ /^127\\./ { print $1; exit }')"
    else:
        shown = words("ip", "-4", "-o", "addr", "show", "dev", job.interface)
        yield f"MASTER_ADDR=$({shown} | awk '{{ split($4, part, \"/\"); print part[1]; exit }}')"
    yield "export MASTER_ADDR=${MASTER_ADDR:-$first} # by its name, where that is all there is"
    yield from port_lines(job, seed)
    yield FREE_PORT
