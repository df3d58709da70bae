"""The command line of echelon.pyz: which part of the node side this process is."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    match sys.argv[1:]:
        case ["supervise", run]:
            from echelon.node import attempts

            sys.exit(attempts.main(Path(run)))
        case ["environment", run]:
            from echelon.node import carried

            sys.exit(carried.main(Path(run)))
        case ["agent", run, attempt, node, host, source, dial_address, dial_port, *environment]:
            from echelon.node import duty

            sys.exit(
                duty.main(
                    run_path=Path(run), attempt=int(attempt), node=int(node), host=host, source=source.strip("-"),
                    supervisor=(dial_address, int(dial_port)), environment_follows=bool(environment),
                )
            )  # fmt: skip
        case ["remote", folder, *ends]:
            from echelon.node import remote

            sys.exit(remote.main(Path(folder), [int(end) for end in ends]))
        case ["warm", link, parent, run, node_dir]:
            from echelon.node import warm

            warm.main(int(link), int(parent), Path(run), Path(node_dir))
        case ["rank", node_dir, rank, *script]:
            from echelon.node import cold

            cold.rank_main(Path(node_dir), int(rank), script)
        case ["worker", launcher]:
            from echelon.node import worker

            sys.exit(worker.main(launcher))
        case _:
            sys.exit("echelon.pyz is started by echelon run; see echelon --help")
