"""Ranks that hang: their stacks are saved, then they are stopped."""

import pytest
from story import Story, in_phase

from echelon.diagnosis.causes import Cause
from echelon.diagnosis.evidence import Collective, GroupStatus, ProcessState, RankEvidence
from echelon.supervisor.state import Phase, PhaseTimedOut, RanksHung, ReportFault, Send
from echelon.wire.messages import CollectEvidence, EvidenceCollected, Stop


def test_stacks_are_saved_before_a_hang_is_ended():
    story = Story().run().tell(RanksHung(0, "no progress for 60 s"))
    assert story.phase is Phase.COLLECTING_EVIDENCE
    assert story.last == (Send((0, 1), CollectEvidence(generation=0)),)


def test_ranks_are_stopped_once_all_stacks_are_saved():
    story = Story().run().tell(RanksHung(0, "hung")).hear(0, EvidenceCollected(generation=0))
    assert story.phase is Phase.COLLECTING_EVIDENCE
    assert story.hear(1, EvidenceCollected(generation=0)).last == (Send((0, 1), Stop(generation=0, grace=5.0)),)


def test_a_dump_that_never_ends_is_not_waited_for():
    story = (
        Story()
        .run()
        .tell(RanksHung(0, "hung"))
        .hear(0, EvidenceCollected(generation=0))
        .tell(PhaseTimedOut(Phase.COLLECTING_EVIDENCE))
    )
    assert story.last[-1] == Send((0, 1), Stop(generation=0, grace=5.0))


def test_hang_stays_the_fault_if_ranks_fail_during_the_stop():
    story = Story().run().tell(RanksHung(0, "hung"), PhaseTimedOut(Phase.COLLECTING_EVIDENCE)).leave(0, -15).stopped()
    assert story.outcome.fault.sentence == "hung"
    assert story.outcome.exit_code == 1


@pytest.mark.parametrize("phase", [Phase.GATHERING, Phase.BINDING, Phase.STOPPING, Phase.DRAINING])
def test_only_running_ranks_can_hang(phase):
    story = in_phase(phase)
    assert story.tell(RanksHung(story.generation, "late")).phase is phase


def test_evidence_of_all_nodes_names_the_cause_of_a_hang():
    stopped, waiting = (
        RankEvidence(rank=rank, host=f"n{rank + 1}", process=ProcessState(pid=rank + 10, state=state))
        for rank, state in ((0, "T"), (1, "S"))
    )
    story = Story().run().tell(RanksHung(0, "no progress for 60 s: all", idle_seconds=60.0, idle_by_rank={0: 61.0}))
    story.hear(0, EvidenceCollected(generation=0, ranks=(stopped,)))
    story.hear(1, EvidenceCollected(generation=0, ranks=(waiting,))).stopped()
    fault = story.outcome.fault
    assert fault.sentence.startswith("no progress for 60 s: rank 0 on n1 is stopped by a signal (SIGSTOP)")
    assert (fault.cause, fault.ranks) == ("hang_stopped", (0,))
    assert (fault.failure.cause, fault.failure.host) == (Cause.RANK_STOPPED, "n1")


def test_ranks_that_never_started_are_not_explained_as_a_hang():
    hang = RanksHung(0, "rank 1 did not start", incomplete=True)
    evidence = EvidenceCollected(generation=0, ranks=(RankEvidence(rank=0, process=ProcessState(pid=9, state="T")),))
    story = Story().run().tell(hang).hear(0, evidence).hear(1, EvidenceCollected(generation=0)).stopped()
    assert story.outcome.fault.sentence == "rank 1 did not start"


def hang(story, ranks, step=None):
    """The ranks of the first node hang, and everyone has stopped."""
    if step is not None:
        story.progress(step=step)
    story.tell(RanksHung(story.generation, "no progress for 60 s: all", idle_seconds=60.0))
    story.hear(0, EvidenceCollected(generation=story.generation, ranks=tuple(ranks)))
    return story.hear(1, EvidenceCollected(generation=story.generation)).stopped()


def mismatch(sequence=4):
    """One rank calls another collective than the others."""
    group = GroupStatus(group="0", description="default_pg", last_enqueued=sequence, last_completed=sequence - 1)
    for rank, operation in enumerate(("all_reduce", "all_reduce", "broadcast")):
        call = Collective(
            group="0", sequence=sequence, operation=operation, sizes=((1,),), dtypes=("float32",), pending=True
        )
        yield RankEvidence(rank=rank, host=f"host{rank}", has_flight=True, groups=(group,), collectives=(call,))


@pytest.mark.parametrize("step", [7, None])
def test_mismatch_of_collectives_at_the_same_step_twice_stops(step):
    story = hang(Story(restarts=9).run(), mismatch(), step).again()
    assert story.generation == 1
    outcome = hang(story, mismatch(), step).outcome
    assert outcome.fault.cause == "hang_mismatch"
    assert outcome.reason == f"same hang at the same {'step' if step else 'place'} twice; not restarting"


def test_mismatch_at_another_collective_restarts_without_steps():
    story = hang(Story(restarts=9).run(), mismatch(4)).again()
    assert hang(story, mismatch(5)).again().generation == 2


def test_hang_without_evidence_is_restarted_after_a_delay():
    story = Story(restarts=9).run()
    for delay in (0.0, 1.0, 2.0):
        hang(story, (), 5)
        assert story.state.delay == delay
        story.again()


def test_second_hang_of_a_node_on_a_file_excludes_it():
    process = ProcessState(pid=10, state="D", system_call="read", path="/data/a")
    held = RankEvidence(rank=0, host="host0", process=process)
    story = hang(Story(restarts=9, requeues=1, lost_host_is_reusable=False).run(), [held], 3).again()
    outcome = hang(story, [held], 4).outcome
    assert story.done(ReportFault)[-1].fault.cause == "hang_file"
    assert outcome.lost_hosts == ("host0",)
