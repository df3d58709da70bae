"""Helpers for tests of `decide`: a run in any phase, without a process."""

from echelon.doctor.model import Plan
from echelon.supervisor.gathering import initial_decision
from echelon.supervisor.state import (
    AgentLost,
    Ending,
    Finish,
    NodeState,
    Outcome,
    Phase,
    PhaseTimedOut,
    RanksActive,
    RanksHung,
    Rules,
    Send,
)
from echelon.supervisor.transitions import decide
from echelon.wire.faults import Loss
from echelon.wire.messages import Exit, Exited, Heartbeat, Hello, Sample, Stopped
from echelon.wire.reports import ErrorRecord, FatalNodeProblem, PortBound

SIGINT, SIGTERM = 2, 15
TROUBLE = FatalNodeProblem(what="no torch", why="ImportError", hint="pip install torch")
BROKEN = Outcome(ending=Ending.FAILED, exit_code=3, reason="no torch (on host0): ImportError", hint="pip install torch")
"""What the trouble on node 0 makes of the run."""


class Story:
    """A run told event by event, with everything that was decided on the way."""

    def __init__(self, **rules):
        rules = {"nodes": 2, "procs_per_node": 2, **rules}
        self.rules = Rules(**{"min_nodes": rules["nodes"], **rules})
        self.state, self.last = initial_decision(self.rules)
        self.actions = list(self.last)

    def tell(self, *events):
        """Events of the supervisor itself."""
        return self.hear(None, *events)

    def hear(self, node, *messages):
        """Messages of the agent of a node."""
        self.last = ()
        for message in messages:
            self.state, actions = decide(self.state, node, message)
            self.last += actions
        self.actions += self.last
        return self

    @property
    def phase(self):
        return self.state.phase

    @property
    def generation(self):
        return self.state.generation

    @property
    def outcome(self):
        (finish,) = [action for action in self.actions if isinstance(action, Finish)]
        return finish.outcome

    def done(self, kind):
        return [action for action in self.actions if isinstance(action, kind)]

    def sent(self, kind):
        return [action.message for action in self.done(Send) if isinstance(action.message, kind)]

    # What usually comes next

    def gather(self, *nodes):
        nodes = nodes or range(self.rules.nodes + self.rules.spare_nodes)
        return self.hear_each({node: hello(node) for node in nodes})

    def hear_each(self, messages):
        """One message of each of several nodes."""
        last = ()
        for node, message in messages.items():
            last += self.hear(node, message).last
        self.last = last
        return self

    def bind(self):
        return self.hear(self.state.members[0], bound(self.generation))

    def run(self):
        return self.gather().bind()

    def again(self):
        """The delay is over, every node that is starting comes, and the ranks are started."""
        if self.phase is Phase.BACKING_OFF:
            self.tell(PhaseTimedOut(Phase.BACKING_OFF))
        starting = [node for node, what in self.state.nodes.items() if what is NodeState.STARTING]
        return (self.gather(*starting) if starting else self).bind()

    def leave(self, rank, code, **fields):
        node = rank // self.rules.procs_per_node
        return self.hear(node, Exited(generation=self.generation, exit=gone(rank, code, **fields)))

    def all_leave(self, code):
        for rank in range(len(self.state.members) * self.rules.procs_per_node):
            self.leave(rank, code)
        return self

    def stopped(self):
        stopped = Stopped(generation=self.generation)
        return self.hear_each(dict.fromkeys(sorted(self.state.pending), stopped))

    def progress(self, step=None, committed=None, *, active=False):
        self.hear(0, pulse(self.generation, step, committed))
        return self.tell(RanksActive(self.generation)) if active else self

    def die(self, rank=0, code=1, **fields):
        """A rank dies and everyone has stopped."""
        return self.leave(rank, code, **fields).stopped()

    def lose(self, node, loss=Loss.PROCESS):
        return self.tell(AgentLost(node, loss))


def hello(node, address="10.0.0.1"):
    return Hello(node=node, host=f"host{node}", address=address, pid=99, node_dir="/tmp/echelon-x")


def bound(generation, port=29500, *, store_is_up=True, launcher_port=0):
    return PortBound(generation=generation, port=port, store_is_up=store_is_up, launcher_port=launcher_port)


def pulse(generation, step=None, committed=None):
    sample = Sample(rank=0, lines=0, cpu_seconds=0.0, stopped=False, step=step, committed=committed)
    return Heartbeat(generation=generation, samples=(sample,))


def gone(rank, code, *, time=100.0, error=None, **fields):
    record = None if error is None else ErrorRecord(time=time, type="ValueError", message=error, traceback="...")
    return Exit(rank=rank, host=f"host{rank}", code=code, time=time, error=record, **fields)


def in_phase(phase):
    story = Story(restarts=9, requeues=9)
    match phase:
        case Phase.GATHERING:
            return story
        case Phase.CHECKING:
            return Story(restarts=9, requeues=9, preflight=Plan()).gather()
        case Phase.BINDING:
            return story.gather()
        case Phase.RUNNING:
            return story.run()
        case Phase.DRAINING:
            return story.run().leave(0, 75)
        case Phase.COLLECTING_EVIDENCE:
            return story.run().tell(RanksHung(0, "hung"))
        case Phase.BACKING_OFF:
            return story.run().die(code=-9).again().die(code=-9)
        case Phase.STOPPING:
            return story.run().leave(0, 1)
        case Phase.ENDED:
            return story.run().all_leave(0).stopped()
