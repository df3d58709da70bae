"""The command line of echelon.pyz: starts one process of the node side."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    match sys.argv[1:]:
        case ["supervise", run]:
            from echelon.supervisor import process

            sys.exit(process.main(Path(run)))
        case ["environment", run]:
            from echelon.backends.pbs.environment import main as print_environment

            sys.exit(print_environment(Path(run)))
        case ["agent", run, attempt, node, host, source, dial_address, dial_port, *environ]:
            from echelon.agent.main import main as agent_main

            sys.exit(
                agent_main(
                    run_path=Path(run),
                    attempt=int(attempt),
                    node=int(node),
                    host=host,
                    source=source.strip("-"),
                    supervisor=(dial_address, int(dial_port)),
                    environ_follows=bool(environ),
                )
            )
        case ["remote", folder, *ends]:
            from echelon.agent import remote

            sys.exit(remote.main(Path(folder), [int(end) for end in ends]))
        case ["starter", link, parent, run, node_dir]:
            from echelon.agent import starter

            starter.main(int(link), int(parent), Path(run), Path(node_dir))
        case ["importer", owner, parent, run]:
            from echelon.agent import importer

            importer.main(int(owner), int(parent), Path(run))
        case ["rank", node_dir, rank, *script]:
            from echelon.agent import cold_rank

            cold_rank.cold_rank_main(Path(node_dir), int(rank), script)
        case ["check", plan, place, parent]:
            from echelon.doctor.node import main as check_main

            check_main([plan, place, parent])
        case ["worker", launcher]:
            from echelon.agent import worker

            sys.exit(worker.main(launcher))
        case _:
            sys.exit("echelon.pyz is started by echelon run; see echelon --help")
