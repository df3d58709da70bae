"""Every fault path as plain values: an event goes in, the next state and what to do come out."""

import signal
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.node.decide import decide, opening
from echelon.node.faults import Fault
from echelon.node.messages import ErrorRecord, Exit
from echelon.node.situation import (
    AgentJoined,
    AgentLost,
    BindPort,
    CancelAsked,
    DumpStacks,
    EndAgent,
    Ending,
    Finish,
    GiveNotice,
    Hopeless,
    LauncherLost,
    Loss,
    NodeState,
    NodeStopped,
    NoticeDue,
    Outcome,
    Phase,
    PhaseTimedOut,
    PortBound,
    Progressed,
    RankExited,
    RanksHung,
    ReportFault,
    Rules,
    StacksWritten,
    StartAgent,
    StartRanks,
    StopRanks,
    TimeIsUp,
    WarningCame,
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


# Gathering agents, starting ranks


def test_every_node_gets_an_agent_at_the_start_spares_included():
    assert Story(nodes=2, spares=1).last == (StartAgent(0), StartAgent(1), StartAgent(2))


def test_nothing_begins_before_everyone_has_come():
    story = Story().gather(0)
    assert story.phase is Phase.GATHERING
    assert story.last == ()


def test_the_first_node_binds_the_port_once_everyone_has_come():
    story = Story().gather(1, 0)
    assert story.phase is Phase.BINDING
    assert story.last == (BindPort(0, 0),)


def test_a_spare_is_not_waited_for():
    assert Story(nodes=2, spares=1).gather(0, 1).phase is Phase.BINDING


def test_a_spare_does_not_stand_in_for_a_node_that_may_yet_come():
    assert Story(nodes=2, spares=1).gather(0, 2).phase is Phase.GATHERING


def test_the_bound_port_is_handed_to_all_members():
    story = Story().gather().tell(PortBound(0, "10.0.0.7", 4711, False))
    assert story.phase is Phase.RUNNING
    assert story.last == (StartRanks(0, (0, 1), "10.0.0.7", 4711, False),)


def test_a_port_is_not_asked_for_and_so_not_used_while_running():
    story = Story().run().tell(PortBound(0, "10.0.0.8", 1, True))
    assert story.phase is Phase.RUNNING
    assert story.last == ()


def test_a_spare_that_comes_late_disturbs_nothing():
    story = Story(spares=1).gather(0, 1).bind().gather(2)
    assert story.phase is Phase.RUNNING
    assert story.last == ()


# Timeouts while gathering


def test_those_who_did_not_come_are_named():
    story = Story(nodes=3).gather(1).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.phase is Phase.ENDED
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason == "no agent came from node 0, node 2 in time"
    assert story.done(EndAgent) == [EndAgent(0), EndAgent(2)]


def test_those_who_did_not_come_back_are_named_by_their_host():
    story = Story(restarts=1).run().lose(1).stopped().tell(PhaseTimedOut(Phase.GATHERING))
    assert story.outcome.reason == "no agent came from host1 in time"


def test_those_who_came_go_on_when_they_are_enough():
    story = Story(nodes=3, smallest=2).gather(0, 2).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.phase is Phase.BINDING
    assert story.last == (EndAgent(1), BindPort(0, 0))
    assert story.state.members == (0, 2)


def test_a_spare_takes_the_place_of_one_who_did_not_come():
    story = Story(nodes=2, spares=1).gather(1, 2).tell(PhaseTimedOut(Phase.GATHERING))
    assert story.state.members == (1, 2)
    assert story.last == (EndAgent(0), BindPort(1, 0))


def test_a_head_node_that_never_binds_is_lost():
    story = Story(restarts=1, smallest=1, host_comes_back=False).gather().tell(PhaseTimedOut(Phase.BINDING))
    assert story.last == (EndAgent(0), StopRanks(0, (1,), 5.0))
    assert story.stopped().last[1:] == (BindPort(1, 1),)


# Ranks that end well


def test_the_run_has_succeeded_when_all_ranks_left_with_zero():
    story = Story().run().all_leave(0)
    assert story.phase is Phase.STOPPING
    assert story.stopped().outcome == Outcome(ending=Ending.SUCCEEDED, exit_code=0, reason="all ranks finished")
    assert story.state.restarts_used == 0


def test_a_rank_that_leaves_early_with_zero_is_no_fault():
    story = Story().run().leave(0, 0)
    assert story.phase is Phase.RUNNING
    assert story.last == ()


def test_even_a_run_that_succeeded_is_swept_before_it_ends():
    assert Story().run().all_leave(0).last == (StopRanks(0, (0, 1), 5.0),)


def test_the_same_rank_leaving_twice_counts_once():
    story = Story(nodes=1, procs_per_node=2).run().leave(0, 0).leave(0, 0)
    assert story.phase is Phase.RUNNING


# Ranks that fail


def test_a_rank_that_fails_stops_all_the_others():
    story = Story().run().leave(3, 1)
    assert story.phase is Phase.STOPPING
    assert story.last == (StopRanks(0, (0, 1), 5.0),)


def test_a_fault_is_reported_with_the_restarts_that_are_left():
    story = Story(restarts=3).run().die(rank=1, code=-9)
    (report,) = story.done(ReportFault)
    assert (report.generation, report.restarts_left) == (0, 2)
    assert report.fault.sentence == "rank 1 on host1 was killed by SIGKILL"


def test_a_fault_starts_the_next_generation_on_the_same_agents():
    story = Story(restarts=1).run().die()
    assert story.phase is Phase.BINDING
    assert story.last[1:] == (BindPort(0, 1),)
    assert story.bind().last[0] == StartRanks(1, (0, 1), "10.0.0.1", 29500, True)


def test_the_next_generation_knows_nothing_of_the_exits_of_the_last():
    story = Story(restarts=1).run().die().bind()
    assert (story.state.exits, story.state.fault, story.state.step) == ({}, None, None)


def test_without_restarts_a_fault_is_the_end():
    story = Story().run().die(code=7)
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 7
    assert story.outcome.reason == "no restarts were asked for"
    assert "--restarts" in story.outcome.hint
    assert story.outcome.fault.exit.rank == 0


def test_when_all_restarts_are_used_a_fault_is_the_end():
    story = Story(restarts=1).run().die().again().die()
    assert story.outcome.reason == "all 1 restarts are used"
    assert story.outcome.hint == ""
    assert [report.restarts_left for report in story.done(ReportFault)] == [0, 0]


def test_death_by_a_signal_ends_with_the_shells_code():
    assert Story().run().die(code=-11).outcome.exit_code == 139


def test_the_first_failure_by_time_is_the_one_that_is_told():
    story = Story().run().leave(2, 1, time=20.0).leave(0, 9, time=10.0).stopped()
    assert story.outcome.exit_code == 9
    assert story.outcome.fault.exit.rank == 0


def test_the_last_rank_failing_after_the_others_finished_is_a_fault():
    story = Story(nodes=1, restarts=1).run().leave(0, 0).leave(1, 1).stopped()
    assert story.generation == 1


# One fault is one restart


def test_a_launcher_that_ends_before_its_ranks_is_a_fault():
    story = Story(restarts=1).run().tell(LauncherLost(0, "torchrun on host1 was killed by SIGKILL"))
    assert story.phase is Phase.STOPPING
    story.stopped()
    assert story.done(ReportFault)[0].fault.sentence == "torchrun on host1 was killed by SIGKILL"


def test_a_launcher_that_ends_because_its_ranks_do_is_not_the_fault():
    story = Story(restarts=1).run().leave(0, 3).tell(LauncherLost(0, "torchrun on host1 ended with code 1")).stopped()
    assert story.done(ReportFault)[0].fault.sentence == "rank 0 on host0 exited with code 3"


def test_a_launcher_of_the_last_generation_is_nobodys_fault():
    story = Story(restarts=2).run().die().again().tell(LauncherLost(0, "late"))
    assert story.phase is Phase.RUNNING


def test_the_launchers_own_port_is_handed_on():
    story = Story().gather().tell(PortBound(0, "10.0.0.7", 4711, False, 4712))
    assert story.last == (StartRanks(0, (0, 1), "10.0.0.7", 4711, False, 4712),)


def test_several_ranks_dying_at_once_use_one_restart():
    story = Story(restarts=5).run().leave(0, 1).leave(1, -9).leave(2, 1).leave(3, 1).stopped()
    assert story.state.restarts_used == 1
    assert len(story.done(ReportFault)) == 1


def test_an_agent_lost_while_stopping_belongs_to_the_same_fault():
    story = Story(restarts=5).run().leave(0, 1).lose(1)
    assert story.last == (EndAgent(1),)
    story.stopped()
    assert story.state.restarts_used == 1
    assert len(story.done(ReportFault)) == 1


def test_every_agent_lost_while_stopping_belongs_to_the_same_fault():
    story = Story(restarts=5).run().leave(0, 1).lose(0).lose(1)
    assert story.phase is Phase.GATHERING
    assert story.state.restarts_used == 1


def test_all_ranks_dying_and_both_agents_lost_are_one_stop():
    story = Story(restarts=5).run().all_leave(1).lose(0).stopped()
    assert len(story.done(StopRanks)) == 1


def test_a_hang_with_ranks_and_agents_dying_during_the_dump_uses_one_restart():
    story = Story(restarts=5).run().tell(RanksHung(0, "no progress for 9 s")).leave(0, -9).lose(1)
    story.tell(StacksWritten(0, 0)).stopped()
    assert story.state.restarts_used == 1
    (report,) = story.done(ReportFault)
    assert report.fault.sentence == "no progress for 9 s"


# Word from a generation that is over


@pytest.mark.parametrize(
    "event",
    [
        RankExited(0, gone(0, 1)),
        PortBound(0, "a", 1, True),
        Progressed(0, step=99, moved=True),
        RanksHung(0, "late"),
        StacksWritten(0, 0),
        NodeStopped(0, 0),
        RankExited(2, gone(0, 1)),
    ],
    ids=lambda event: f"{type(event).__name__}-{event.generation}",
)
def test_word_from_another_generation_changes_nothing(event):
    story = Story(restarts=1).run().die().again()
    before = story.state
    assert story.tell(event).state == before
    assert story.last == ()


def test_a_stop_of_the_last_generation_does_not_end_this_one():
    story = Story(restarts=2).run().die().again().leave(0, 1)
    assert story.tell(NodeStopped(0, 0), NodeStopped(0, 1)).phase is Phase.STOPPING


# Nodes that are lost


def test_a_lost_agent_is_ended_and_the_others_stopped():
    story = Story(restarts=1).run().lose(1)
    assert story.last == (EndAgent(1), StopRanks(0, (0,), 5.0))


def test_the_loss_is_told_with_the_host():
    story = Story().run().lose(1, Loss.HOST).stopped()
    assert story.outcome.fault.sentence == "host1 was lost: it fell silent"


def test_losing_the_same_agent_twice_is_losing_it_once():
    story = Story(restarts=1).run().lose(1).lose(1)
    assert story.last == ()


def test_a_lost_spare_hurts_nothing_that_runs():
    story = Story(spares=1).run().lose(2)
    assert story.phase is Phase.RUNNING
    assert story.last == (EndAgent(2),)


def test_a_spare_lost_before_the_start_hurts_nothing_either():
    story = Story(spares=1).lose(2).gather(0, 1)
    assert story.phase is Phase.BINDING
    assert story.state.restarts_used == 0


def test_a_lost_spare_is_not_used_later():
    story = Story(spares=1, restarts=1).run().lose(2).lose(1).stopped()
    assert story.done(StartAgent)[-1] == StartAgent(1)


@pytest.mark.parametrize("loss", Loss)
def test_a_spare_comes_first(loss):
    story = Story(spares=1, restarts=1).run().lose(0, loss).stopped()
    assert story.phase is Phase.BINDING
    assert story.state.members == (1, 2)
    assert len(story.done(StartAgent)) == 3


def test_without_a_spare_a_dead_agent_is_started_again_in_place():
    story = Story(restarts=1).run().lose(1).stopped()
    assert story.phase is Phase.GATHERING
    assert story.last[-1] == StartAgent(1)
    assert story.gather(1).last == (BindPort(0, 1),)


def test_a_dead_agent_is_started_again_even_where_fewer_nodes_would_do():
    story = Story(nodes=3, smallest=1, restarts=1).run().lose(2).stopped()
    assert story.last[-1] == StartAgent(2)


def test_a_silent_host_makes_the_run_smaller():
    story = Story(nodes=3, smallest=2, restarts=1).run().lose(1, Loss.HOST).stopped().bind()
    assert story.done(StartRanks)[-1].members == (0, 2)
    assert len(story.done(StartAgent)) == 3


def test_a_run_that_shrank_counts_the_ranks_it_has_left():
    story = Story(nodes=2, smallest=1, restarts=1).run().lose(1, Loss.HOST).stopped().bind().all_leave(0).stopped()
    assert story.outcome.ending is Ending.SUCCEEDED


def test_below_the_smallest_size_a_silent_host_that_comes_back_is_tried_again():
    story = Story(restarts=1).run().lose(1, Loss.HOST).stopped()
    assert story.last[-1] == StartAgent(1)


def test_below_the_smallest_size_a_silent_host_that_stays_away_is_the_end():
    story = Story(restarts=1, host_comes_back=False).run().lose(1, Loss.HOST).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason == "1 of 2 nodes are left (lost: host1), and no requeues were asked for"
    assert "--spare-nodes" in story.outcome.hint
    assert story.outcome.lost_hosts == ("host1",)
    assert StartAgent(1) not in story.last


def test_below_the_smallest_size_a_requeue_may_bring_other_hosts():
    story = Story(restarts=1, requeues=1, host_comes_back=False).run().lose(1, Loss.HOST).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.counts
    assert story.outcome.lost_hosts == ("host1",)


def test_ranks_that_die_of_the_schedulers_term_are_requeued_and_it_costs_nothing():
    story = Story(procs_per_node=1).run().tell(WarningCame())
    story.leave(0, -signal.SIGTERM).leave(1, 75).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert not story.outcome.counts


@pytest.mark.parametrize("code", [-signal.SIGTERM, -signal.SIGKILL])
def test_what_a_launcher_makes_of_a_warning_is_a_requeue_that_costs_none(code):
    story = Story(procs_per_node=1).run().tell(WarningCame()).leave(0, code)
    story.tell(LauncherLost(0, "srun on host0 ended with code 137")).stopped()
    assert (story.outcome.ending, story.outcome.counts) == (Ending.REQUEUED, False)
    assert story.outcome.reason == "the scheduler is ending the job"


def test_a_term_without_a_warning_is_a_fault():
    story = Story(procs_per_node=1).run().leave(0, -signal.SIGTERM).stopped()
    assert story.outcome.ending is Ending.FAILED


def test_spare_then_in_place_then_smaller():
    story = Story(nodes=3, smallest=2, spares=1, restarts=3, host_comes_back=False).run()
    story.tell(Progressed(0, step=1)).lose(0, Loss.HOST).stopped().again()
    assert story.state.members == (1, 2, 3)
    story.tell(Progressed(1, step=2)).lose(1, Loss.PROCESS).stopped().again()
    assert story.state.members == (1, 2, 3)
    story.tell(Progressed(2, step=3)).lose(2, Loss.HOST).stopped().again()
    assert story.state.members == (1, 3)


def test_the_nodes_that_are_left_over_after_shrinking_are_used_in_order():
    story = Story(nodes=2, spares=2, restarts=1).run().lose(0).lose(2).stopped()
    assert story.state.members == (1, 3)


def test_an_agent_lost_while_gathering_is_a_fault():
    story = Story(restarts=1).lose(1)
    assert story.state.restarts_used == 1
    assert story.last[0] == EndAgent(1)
    assert story.last[-1] == StartAgent(1)


def test_an_agent_lost_while_binding_is_a_fault():
    story = Story(restarts=1).gather().lose(0).stopped()
    assert story.state.restarts_used == 1
    assert story.gather(0).last == (BindPort(0, 1),)


def test_an_agent_that_dies_at_every_start_uses_up_the_restarts():
    story = Story(restarts=2).lose(1).lose(1).lose(1)
    assert story.outcome.ending is Ending.FAILED
    assert story.state.restarts_used == 2


def test_an_agent_that_does_not_answer_to_a_stop_is_lost():
    story = Story(restarts=1).run().leave(0, 1).tell(NodeStopped(0, 0), PhaseTimedOut(Phase.STOPPING))
    assert EndAgent(1) in story.last
    assert EndAgent(0) not in story.last
    assert story.state.restarts_used == 1
    assert story.phase is Phase.GATHERING


def test_a_node_that_has_come_back_is_no_longer_counted_as_lost():
    story = Story(restarts=2).run().lose(1).stopped().gather(1)
    assert story.state.losses == {}


# Hangs


def test_stacks_are_saved_before_a_hang_is_ended():
    story = Story().run().tell(RanksHung(0, "no progress for 60 s"))
    assert story.phase is Phase.DUMPING
    assert story.last == (DumpStacks(0, (0, 1)),)


def test_ranks_are_stopped_once_all_stacks_are_saved():
    story = Story().run().tell(RanksHung(0, "hung"), StacksWritten(0, 0))
    assert story.phase is Phase.DUMPING
    assert story.tell(StacksWritten(0, 1)).last == (StopRanks(0, (0, 1), 5.0),)


def test_a_dump_that_never_ends_is_not_waited_for():
    story = Story().run().tell(RanksHung(0, "hung"), StacksWritten(0, 0), PhaseTimedOut(Phase.DUMPING))
    assert story.last[-1] == StopRanks(0, (0, 1), 5.0)


def test_the_hang_is_the_fault_whatever_the_ranks_say_while_they_are_stopped():
    story = Story().run().tell(RanksHung(0, "hung"), PhaseTimedOut(Phase.DUMPING)).leave(0, -15).stopped()
    assert story.outcome.fault == Fault(sentence="hung")
    assert story.outcome.exit_code == 1


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.BINDING, Phase.STOPPING, Phase.WINDING])
def test_only_running_ranks_can_hang(phase):
    story = in_phase(phase)
    assert story.tell(RanksHung(story.generation, "late")).phase is phase


# Exit code 75


def test_ranks_that_all_leave_with_75_are_requeued():
    story = Story(requeues=1).run().all_leave(75).stopped()
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.exit_code == 75
    assert story.state.restarts_used == 0


def test_the_first_75_waits_for_the_others():
    story = Story(requeues=1).run().leave(0, 75)
    assert story.phase is Phase.WINDING
    assert story.last == ()


def test_some_zeros_among_the_75s_are_requeued_too():
    story = Story(nodes=1, requeues=1).run().leave(0, 0).leave(1, 75).stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_a_rank_that_fails_because_the_others_have_left_is_no_fault():
    story = Story(nodes=1, requeues=1).run().leave(0, 75).leave(1, 1, error="Connection closed by peer").stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_ranks_that_never_leave_after_a_75_are_stopped():
    story = Story(requeues=1).run().leave(0, 75).tell(PhaseTimedOut(Phase.WINDING))
    assert story.last == (StopRanks(0, (0, 1), 5.0),)
    assert story.stopped().outcome.ending is Ending.REQUEUED


def test_75_fails_when_the_requeues_are_used_up():
    story = Story(requeues=2, requeued=2).run().all_leave(75).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 75
    assert story.outcome.reason == "the ranks stopped in time, and all 2 requeues are used"
    assert "echelon resume" in story.outcome.hint


def test_75_fails_when_no_requeues_were_asked_for():
    assert Story().run().all_leave(75).stopped().outcome.reason.endswith("no requeues were asked for")


def test_a_crash_before_any_75_is_a_fault():
    story = Story(requeues=1, restarts=1).run().leave(1, 1).leave(0, 75).stopped()
    assert story.generation == 1


# Notice and time limit


def test_notice_is_given_to_the_ranks_that_run():
    assert Story().run().tell(NoticeDue()).last == (GiveNotice((0, 1)),)


def test_notice_is_given_once():
    assert Story().run().tell(NoticeDue()).tell(NoticeDue()).last == ()


def test_notice_before_the_ranks_run_is_given_when_they_start():
    story = Story().gather().tell(NoticeDue())
    assert story.last == ()
    assert story.bind().last[-1] == GiveNotice((0, 1))


def test_notice_is_given_again_to_later_generations():
    story = Story(restarts=2).run().tell(NoticeDue()).die().again()
    assert story.last[-1] == GiveNotice((0, 1))
    assert story.die().again().last[-1] == GiveNotice((0, 1))


def test_notice_while_winding_still_reaches_those_who_have_not_left():
    assert Story().run().leave(0, 75).tell(NoticeDue()).last == (GiveNotice((0, 1)),)


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.BINDING, Phase.STOPPING, Phase.DUMPING])
def test_notice_needs_running_ranks(phase):
    story = in_phase(phase).tell(NoticeDue())
    assert story.last == ()
    assert story.state.notice


def test_the_time_limit_stops_and_requeues():
    story = Story(requeues=1).run().tell(TimeIsUp())
    assert story.last == (StopRanks(0, (0, 1), 5.0),)
    assert story.stopped().outcome.ending is Ending.REQUEUED


def test_the_time_limit_without_requeues_fails_as_timeout_does():
    story = Story(restarts=3).run().tell(TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.exit_code == 124
    assert story.outcome.reason.startswith("the time limit was reached")
    assert story.state.restarts_used == 0


def test_the_time_limit_while_a_fault_is_being_stopped_leaves_no_next_generation():
    story = Story(requeues=1, restarts=3).run().leave(0, 1).tell(TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.REQUEUED


def test_the_time_limit_before_anyone_has_come_ends_at_once():
    assert Story().tell(TimeIsUp()).outcome.exit_code == 124


def test_a_run_that_succeeded_is_not_failed_by_the_time_limit_while_it_is_swept():
    story = Story().run().all_leave(0).tell(TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.SUCCEEDED


# Cancel


@pytest.mark.parametrize(("signum", "word", "code"), [(SIGINT, "SIGINT", 130), (SIGTERM, "SIGTERM", 143)])
def test_cancel_stops_with_grace_and_ends_cancelled(signum, word, code):
    story = Story(restarts=3, requeues=3).run().tell(CancelAsked(signum))
    assert story.last == (StopRanks(0, (0, 1), 5.0),)
    assert story.stopped().outcome == Outcome(ending=Ending.CANCELLED, exit_code=code, reason=f"cancelled by {word}")


def test_a_second_cancel_has_no_grace():
    story = Story().run().tell(CancelAsked(SIGTERM)).tell(NodeStopped(0, 0)).tell(CancelAsked(SIGTERM))
    assert story.last == (StopRanks(0, (1,), 0.0),)


def test_the_first_cancel_while_a_fault_is_stopped_keeps_the_grace():
    story = Story(restarts=1).run().leave(0, 1).tell(CancelAsked(SIGTERM))
    assert story.last == ()
    assert story.stopped().outcome.ending is Ending.CANCELLED


def test_a_second_cancel_during_a_dump_does_not_wait_for_the_stacks_and_has_no_grace():
    story = Story().run().tell(RanksHung(0, "hung"), CancelAsked(SIGTERM), CancelAsked(SIGTERM))
    if story.phase is Phase.DUMPING:
        story.tell(StacksWritten(0, 0), StacksWritten(0, 1))
    assert story.done(StopRanks)[-1].grace == 0.0


def test_cancel_before_anyone_has_come_ends_at_once():
    assert Story().tell(CancelAsked(SIGINT)).outcome.exit_code == 130


def test_cancel_between_generations_starts_no_further_one():
    story = Story(restarts=3).run().lose(1).stopped().tell(CancelAsked(SIGTERM)).stopped()
    assert story.outcome.ending is Ending.CANCELLED


def test_ranks_that_fail_while_being_cancelled_are_no_fault():
    story = Story(restarts=3).run().tell(CancelAsked(SIGTERM)).leave(0, -15).leave(1, 1).stopped()
    assert story.done(ReportFault) == []


def test_a_cancelled_run_is_not_requeued_by_the_time_limit():
    story = Story(requeues=3).run().tell(CancelAsked(SIGTERM), TimeIsUp()).stopped()
    assert story.outcome.ending is Ending.CANCELLED


def test_a_cancelled_run_stays_cancelled_when_a_node_has_trouble():
    story = Story().run().tell(CancelAsked(SIGTERM), Hopeless(BROKEN)).stopped()
    assert story.outcome.ending is Ending.CANCELLED


# No restart will help


def test_what_no_restart_will_mend_ends_the_run_with_its_own_words():
    story = Story(restarts=3).run().tell(Hopeless(BROKEN)).stopped()
    assert story.outcome == BROKEN
    assert story.state.restarts_used == 0


def test_the_same_exception_at_the_same_step_twice_stops():
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error="bad batch", step=7)
    assert story.outcome.reason.startswith("the same exception came twice at the same place")
    assert story.state.restarts_used == 1


def test_the_same_exception_at_another_step_goes_on():
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error="bad batch", step=8)
    assert story.generation == 2


def test_another_exception_at_the_same_step_goes_on():
    story = Story(restarts=9).run().die(error="bad batch", step=7).again().die(error="no memory", step=7)
    assert story.generation == 2


def test_the_same_exception_after_another_one_goes_on():
    story = Story(restarts=9).run()
    for error in ("a", "b", "a"):
        story.tell(Progressed(story.generation, step=story.generation)).die(error=error, step=7).again()
    assert story.generation == 3


def test_the_same_signal_twice_says_nothing_about_the_place():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9)
    assert story.generation == 2


def test_three_generations_without_progress_stop():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9).again().die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"
    assert story.state.restarts_used == 2


def test_three_generations_that_repeat_the_same_steps_stop():
    story = Story(restarts=9).run()
    for _ in range(3):
        story.tell(Progressed(story.generation, step=10, moved=True)).die(code=-9).again()
    assert story.generation == 3, "the first of them did reach a new step"
    story.tell(Progressed(3, step=10, moved=True)).die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_a_further_step_starts_the_count_anew():
    story = Story(restarts=9).run().die(code=-9).again().die(code=-9).again()
    story.tell(Progressed(2, step=1)).die(code=-9)
    assert story.state.idle_generations == 0
    story.again().die(code=-9).again().die(code=-9).again().die(code=-9)
    assert story.outcome.reason == "3 generations in a row made no progress"
    assert story.state.restarts_used == 5


def test_a_new_saved_step_is_progress_even_if_more_was_once_reported_and_never_saved():
    story = Story(restarts=9).run().tell(Progressed(0, step=100)).die(code=-9).again()
    for saved in (50, 60, 70):
        story.tell(Progressed(story.generation, step=saved, committed=saved)).die(code=-9).again()
    assert story.generation == 4


def test_steps_that_were_reported_but_not_saved_are_no_progress_where_the_script_saves():
    story = Story(restarts=9).run().tell(Progressed(0, step=10, committed=10)).die(code=-9).again()
    for step in (20, 30, 40):
        story.tell(Progressed(story.generation, step=step, committed=10, moved=True)).die(code=-9).again()
    assert story.outcome.reason == "3 generations in a row made no progress"


def test_what_a_rank_did_between_the_last_pulse_and_its_exit_counts():
    story = Story(restarts=9).run()
    for step in (1, 2, 3, 4):
        story.die(code=-9, step=step).again()
    assert story.generation == 4


def test_output_or_cpu_time_is_progress_where_no_steps_are_reported():
    story = Story(restarts=9).run()
    for _ in range(5):
        story.tell(Progressed(story.generation, moved=True)).die(code=-9).again()
    assert story.generation == 5


def test_a_step_is_never_taken_back():
    story = Story().run().tell(Progressed(0, 5), Progressed(0, 3), Progressed(0, None))
    assert story.state.step == 5


# The end


EVERY_KIND = (
    AgentJoined(0, "host0"),
    AgentLost(0, Loss.HOST),
    PortBound(0, "a", 1, True),
    RankExited(0, gone(0, 1)),
    Progressed(0, step=1, moved=True),
    RanksHung(0, "hung"),
    StacksWritten(0, 0),
    NodeStopped(0, 0),
    *(PhaseTimedOut(phase) for phase in Phase),
    NoticeDue(),
    TimeIsUp(),
    CancelAsked(SIGTERM),
    Hopeless(BROKEN),
)


@pytest.mark.parametrize("event", EVERY_KIND, ids=repr)
def test_nothing_happens_after_the_end(event):
    story = Story(restarts=3, requeues=3).run().all_leave(0).stopped()
    before = story.state
    assert story.tell(event).last == ()
    assert story.state == before


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


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_be_told(phase):
    assert in_phase(phase).phase is phase


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.RUNNING, Phase.ENDED)])
def test_every_wait_has_an_end(phase):
    assert in_phase(phase).tell(PhaseTimedOut(phase)).phase is not phase


def test_running_has_no_time_limit_of_its_own():
    assert in_phase(Phase.RUNNING).tell(PhaseTimedOut(Phase.RUNNING)).phase is Phase.RUNNING


@pytest.mark.parametrize("phase", Phase)
def test_a_timeout_of_another_phase_changes_nothing(phase):
    story = in_phase(phase)
    before = story.state
    for other in set(Phase) - {phase}:
        assert story.tell(PhaseTimedOut(other)).state == before


def test_decide_changes_no_state_in_place():
    before = Story(restarts=1).run().state
    copy = replace(before, nodes=dict(before.nodes), hosts=dict(before.hosts), losses=dict(before.losses))
    for event in EVERY_KIND:
        decide(before, event)
    assert before == copy


# Anything, in any order

nodes = st.integers(0, 3)
generations = st.integers(-1, 1)  # how far from the one that is on
steps = st.none() | st.integers(0, 5)
exits = st.builds(
    gone,
    st.integers(0, 5),
    st.sampled_from([0, 0, 1, 75, 75, -9]),
    time=st.floats(0, 100),
    error=st.none() | st.sampled_from(["bad batch", "Connection closed"]),
    step=steps,
)
recipes = st.one_of(
    st.builds(lambda node: lambda _: AgentJoined(node, f"host{node}"), nodes),
    st.builds(lambda node, loss: lambda _: AgentLost(node, loss), nodes, st.sampled_from(Loss)),
    st.builds(lambda off: lambda now: PortBound(now + off, "a", 1, True), generations),
    st.builds(lambda off, gone: lambda now: RankExited(now + off, gone), generations, exits),
    st.builds(lambda gone: lambda now: RankExited(now, gone), exits),
    st.builds(
        lambda off, step, committed, moved: lambda now: Progressed(now + off, step, committed, moved),
        generations,
        steps,
        steps,
        st.booleans(),
    ),
    st.builds(lambda off: lambda now: RanksHung(now + off, "hung"), generations),
    st.builds(lambda off, node: lambda now: StacksWritten(now + off, node), generations, nodes),
    st.builds(lambda off, node: lambda now: NodeStopped(now + off, node), generations, nodes),
    st.builds(lambda node: lambda now: NodeStopped(now, node), nodes),
    st.builds(lambda phase: lambda _: PhaseTimedOut(phase), st.sampled_from(Phase)),
    st.sampled_from([lambda _: NoticeDue(), lambda _: TimeIsUp(), lambda _: Hopeless(BROKEN)]),
    st.builds(lambda signum: lambda _: CancelAsked(signum), st.sampled_from([SIGINT, SIGTERM, 99])),
)
any_rules = st.builds(
    lambda size, smallest, spares, **rules: {
        "nodes": size, "smallest": min(size, smallest), "spares": min(spares, 4 - size), **rules,
    },
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 3),
    procs_per_node=st.integers(1, 2), restarts=st.integers(0, 4), requeues=st.integers(0, 1),
    host_comes_back=st.booleans(),
)  # fmt: skip


def is_known(story, event):
    """Only nodes of this job ever speak, and one that was given up does not: its agent has been killed."""
    node = getattr(event, "node", None)
    if isinstance(event, AgentJoined):
        return story.state.nodes.get(node) is NodeState.STARTING
    return node is None or node in story.state.nodes


@settings(max_examples=400)
@given(any_rules, st.lists(recipes, max_size=60), st.booleans())
def test_whatever_happens_in_whatever_order(rules, script, smooth):
    story = Story(**rules)
    if smooth:
        story.run()
    for recipe in script:
        event = recipe(story.generation)
        if is_known(story, event):
            check_one(story, event)
    assert len(story.done(Finish)) == (story.phase is Phase.ENDED)


def check_one(story, event):
    before = story.state
    after = story.tell(event).state
    assert after.restarts_used <= after.rules.restarts
    assert after.generation == after.restarts_used
    assert after.generation - before.generation in (0, 1)
    assert len([action for action in story.last if isinstance(action, ReportFault)]) <= 1
    if before.phase is Phase.ENDED:
        assert (after, story.last) == (before, ())
    if isinstance(event, PhaseTimedOut) and event.phase is before.phase is not Phase.RUNNING:
        assert (after.phase, after.generation) != (before.phase, before.generation) or after.phase is Phase.ENDED
    check_members(after)
    for action in story.last:
        check_action(before, after, action, story.last)


def check_members(state):
    if state.phase in (Phase.BINDING, Phase.RUNNING, Phase.WINDING):
        assert state.rules.smallest <= len(state.members) <= state.rules.nodes
        assert {state.nodes[node] for node in state.members} == {NodeState.READY}
    if state.phase in (Phase.DUMPING, Phase.STOPPING):
        assert state.pending
        assert {state.nodes[node] for node in state.pending} == {NodeState.READY}
    assert set(state.losses) == {node for node, what in state.nodes.items() if what is NodeState.LOST}


def check_action(before, after, action, actions):
    """Nobody talks to a node that is not there, and no agent is started twice."""
    match action:
        case BindPort() | EndAgent():
            assert before.nodes[action.node] is not NodeState.LOST
        case StartRanks() | GiveNotice() | DumpStacks() | StopRanks():
            assert action.members
            assert {after.nodes[node] for node in action.members} == {NodeState.READY}
        case StartAgent():
            assert before.nodes[action.node] is NodeState.LOST or EndAgent(action.node) in actions
            assert after.nodes[action.node] is NodeState.STARTING
        case _:
            pass


deaths = st.lists(
    st.one_of(
        st.builds(
            lambda rank, code: RankExited(0, gone(rank, code)), st.integers(0, 5), st.sampled_from([1, -9, 75, 0])
        ),
        st.builds(AgentLost, st.integers(0, 2), st.sampled_from(Loss)),
        st.builds(RanksHung, st.just(0), st.just("hung")),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(deaths)
def test_one_fault_uses_one_restart_whatever_dies_with_it(deaths):
    story = Story(nodes=3, restarts=5).run().leave(0, 1)
    for death in deaths:
        if story.generation == 0:
            story.tell(death)
    if story.generation == 0:
        story.tell(PhaseTimedOut(Phase.STOPPING))
    assert story.state.restarts_used == 1
    assert len(story.done(ReportFault)) == 1
    assert len(story.done(StopRanks)) == 1


@settings(max_examples=200)
@given(any_rules, st.lists(recipes, max_size=40))
def test_every_run_can_be_brought_to_its_end_by_cancel_and_the_clock(rules, script):
    story = Story(**rules)
    for recipe in script:
        event = recipe(story.generation)
        if is_known(story, event):
            story.tell(event)
    story.tell(CancelAsked(SIGTERM))
    for _ in range(3):
        story.tell(PhaseTimedOut(story.phase))
    assert story.phase is Phase.ENDED
