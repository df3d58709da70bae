"""What tests of `decide` tell: a run, in whatever phase, without a process."""

from echelon.node.decide import decide, opening
from echelon.node.messages import ErrorRecord, Exit
from echelon.node.situation import (
    AgentJoined,
    AgentLost,
    Ending,
    Finish,
    Loss,
    NodeState,
    NodeStopped,
    Outcome,
    Phase,
    PortBound,
    RankExited,
    RanksHung,
    Rules,
)

SIGINT, SIGTERM = 2, 15
BROKEN = Outcome(ending=Ending.FAILED, exit_code=3, reason="no torch", hint="pip install torch")


class Story:
    """A run told event by event, with everything that was decided on the way."""

    def __init__(self, **rules):
        rules = {"nodes": 2, "procs_per_node": 2, **rules}
        self.rules = Rules(**{"smallest": rules["nodes"], **rules})
        self.state, self.last = opening(self.rules)
        self.actions = list(self.last)

    def tell(self, *events):
        self.last = ()
        for event in events:
            self.state, actions = decide(self.state, event)
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

    # What usually comes next

    def gather(self, *nodes):
        nodes = nodes or range(self.rules.nodes + self.rules.spares)
        return self.tell(*(AgentJoined(node, f"host{node}") for node in nodes))

    def bind(self):
        return self.tell(PortBound(self.generation, "10.0.0.1", 29500, True))

    def run(self):
        return self.gather().bind()

    def again(self):
        """Every node that is starting comes, and the ranks are started."""
        starting = [node for node, what in self.state.nodes.items() if what is NodeState.STARTING]
        return (self.gather(*starting) if starting else self).bind()

    def leave(self, rank, code, **fields):
        return self.tell(RankExited(self.generation, gone(rank, code, **fields)))

    def all_leave(self, code):
        for rank in range(len(self.state.members) * self.rules.procs_per_node):
            self.leave(rank, code)
        return self

    def stopped(self):
        return self.tell(*(NodeStopped(self.generation, node) for node in sorted(self.state.pending)))

    def die(self, rank=0, code=1, **fields):
        """A rank dies and everyone has stopped."""
        return self.leave(rank, code, **fields).stopped()

    def lose(self, node, loss=Loss.PROCESS):
        return self.tell(AgentLost(node, loss))


def gone(rank, code, *, time=100.0, error=None, **fields):
    record = None if error is None else ErrorRecord(time=time, type="ValueError", message=error, traceback="...")
    return Exit(rank=rank, host=f"host{rank}", code=code, time=time, error=record, **fields)


def in_phase(phase):
    story = Story(restarts=9, requeues=9)
    match phase:
        case Phase.GATHERING:
            return story
        case Phase.BINDING:
            return story.gather()
        case Phase.RUNNING:
            return story.run()
        case Phase.WINDING:
            return story.run().leave(0, 75)
        case Phase.DUMPING:
            return story.run().tell(RanksHung(0, "hung"))
        case Phase.STOPPING:
            return story.run().leave(0, 1)
        case Phase.ENDED:
            return story.run().all_leave(0).stopped()
