"""One fault uses one restart, no matter how many processes die with it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from story import Story, gone

from echelon.supervisor.state import AgentLost, EndAgent, Phase, PhaseTimedOut, RanksHung, ReportFault
from echelon.wire.faults import Loss
from echelon.wire.messages import EvidenceCollected, Exited, Stop


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


def test_agents_lost_while_stopping_belong_to_the_same_fault():
    story = Story(restarts=5).run().leave(0, 1).lose(0).lose(1)
    assert story.phase is Phase.GATHERING
    assert story.state.restarts_used == 1


def test_all_ranks_dying_and_both_agents_lost_are_one_stop():
    story = Story(restarts=5).run().all_leave(1).lose(0).stopped()
    assert len(story.sent(Stop)) == 1


def test_deaths_during_a_stack_dump_use_one_restart():
    story = Story(restarts=5).run().tell(RanksHung(0, "no progress for 9 s")).leave(0, -9).lose(1)
    story.hear(0, EvidenceCollected(generation=0)).stopped()
    assert story.state.restarts_used == 1
    (report,) = story.done(ReportFault)
    assert report.fault.sentence == "no progress for 9 s"


deaths = st.lists(
    st.one_of(
        st.builds(
            lambda rank, code: Exited(generation=0, exit=gone(rank, code)),
            st.integers(0, 5),
            st.sampled_from([1, -9, 75, 0]),
        ),
        st.builds(AgentLost, st.integers(0, 2), st.sampled_from(Loss)),
        st.builds(RanksHung, st.just(0), st.just("hung")),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(deaths)
def test_one_fault_with_several_deaths_uses_one_restart(deaths):
    story = Story(nodes=3, restarts=5).run().leave(0, 1)
    for death in deaths:
        if story.generation == 0:
            story.hear(0, death)
    if story.generation == 0:
        story.tell(PhaseTimedOut(Phase.STOPPING))
    assert story.state.restarts_used == 1
    assert len(story.done(ReportFault)) == 1
    assert len(story.sent(Stop)) == 1
