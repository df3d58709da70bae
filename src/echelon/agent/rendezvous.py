"""The rendezvous of a generation: its port, its store, and the stores that a script opens itself."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from echelon.agent.torch_import import store_options
from echelon.job import Job
from echelon.system import network
from echelon.wire.fds import OpenStore
from echelon.wire.reports import PortBound

if TYPE_CHECKING:
    from echelon.agent.ranks import RankSet

AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"


def bind_rendezvous_port(
    job: Job, generation: int, address: str, ranks: RankSet, ports: network.ReservedPorts
) -> PortBound:
    """In a warm run the starter opens the store on the port. Otherwise the port is reserved until rank 0 listens on it.

    Raises EnvironmentProblem.
    """
    return _open_store(job, generation, address, ranks) if job.warm else _hold_ports(job, generation, address, ports)


def _open_store(job: Job, generation: int, address: str, ranks: RankSet) -> PortBound:
    with network.bind(address, job.ports) as sock:
        sock.listen(4096)
        port = sock.getsockname()[1]
        ranks.open_store(generation, address, port, sock.fileno())
    return PortBound(generation=generation, port=port, store_is_up=True)


def _hold_ports(job: Job, generation: int, address: str, ports: network.ReservedPorts) -> PortBound:
    port = ports.reserve(address, job.ports)
    apart = job.launching.rdzv == "c10d"  # torchrun's agents use another store than the ranks
    second = ports.reserve(address, job.ports) if apart else 0
    ports.make_reusable()
    return PortBound(generation=generation, port=port, store_is_up=False, launcher_port=second)


def run_store(order: OpenStore, listener: int) -> None:
    """Runs the rendezvous store and never returns. In a separate process the store outlives rank 0 and listens on one
    address only."""
    distributed = importlib.import_module("torch.distributed")
    store = distributed.TCPStore(
        order.address,
        order.port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener,
        **store_options(sys.modules["torch"].__version__),
    )
    while store is not None:
        signal.pause()


def allow_own_rendezvous(main_port: int) -> None:
    """Rank 0 starts the store of every rendezvous that is not at `main_port`. Needs torch.distributed imported."""
    rendezvous: Any = sys.modules["torch.distributed.rendezvous"]
    create = getattr(rendezvous, "_create_c10d_store", None)
    if create is None:
        return  # unknown version of torch: scripts with their own port need --cold

    def create_store(hostname: str, port: int, *args: Any, **kwargs: Any) -> Any:
        asked = os.environ.get(AGENT_STORE)
        if asked is None or port == main_port:
            return create(hostname, port, *args, **kwargs)
        os.environ[AGENT_STORE] = str(False)
        try:
            return create(hostname, port, *args, **kwargs)
        finally:
            os.environ[AGENT_STORE] = asked

    rendezvous._create_c10d_store = create_store
