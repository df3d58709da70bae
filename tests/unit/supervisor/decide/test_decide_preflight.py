"""The gate before the first generation: failing nodes are replaced by spares, or excluded and named."""

import pytest
from story import Story

from echelon.codec import encode
from echelon.doctor.meeting import format_line
from echelon.doctor.model import Plan, Result
from echelon.supervisor.state import (
    AgentLost,
    CancelRequested,
    CheckNodes,
    EndAgent,
    Ending,
    Phase,
    PhaseTimedOut,
    Warn,
)
from echelon.wire.faults import Loss
from echelon.wire.messages import BindPort, MeetingOpened, NodeChecked


def answer(**limits):
    result = format_line("result", encode(Result(check="limits", facts=limits)))
    return NodeChecked(output=f"{result}\n{format_line('end', {})}\n")


GOOD, BAD = answer(), answer(open_files=64)
ODD = NodeChecked(output=format_line("result", encode(Result(check="limits", facts={}))))


def checking(**rules):
    return Story(**{"preflight": Plan(), **rules}).gather()


def answered(story, *answers):
    story.hear(0, MeetingOpened(port=7000))
    return story.hear_each(dict(enumerate(answers)))


def warnings(story):
    return [one.text for one in story.done(Warn)]


def test_without_the_option_nothing_is_checked():
    story = Story().gather()
    assert story.done(CheckNodes) == []
    assert story.phase is Phase.BINDING


def test_first_node_is_checked_first_and_the_others_when_it_listens():
    story = checking(spare_nodes=1)
    assert story.phase is Phase.CHECKING
    assert [one.nodes for one in story.done(CheckNodes)] == [(0,)]
    story.hear(0, MeetingOpened(port=7000))
    [_, others] = story.done(CheckNodes)
    assert (others.nodes, others.order, others.port) == ((1, 2), (0, 1, 2), 7000)


def test_ranks_start_when_all_nodes_have_passed():
    story = answered(checking(), GOOD, GOOD)
    assert story.phase is Phase.BINDING
    assert story.state.members == (0, 1)
    assert warnings(story) == []


def test_no_rank_starts_before_all_nodes_have_answered():
    story = answered(checking(), GOOD)
    assert story.phase is Phase.CHECKING
    assert story.sent(BindPort) == []


def test_spare_replaces_a_failing_node():
    story = answered(checking(spare_nodes=1), GOOD, BAD, GOOD)
    assert story.state.members == (0, 2)
    assert EndAgent(1) in story.actions
    assert warnings(story)[-1] == "preflight: excluded host1; replaced by host2"
    assert any("only 64 open files" in text for text in warnings(story))


def test_failing_spare_is_not_missed():
    story = answered(checking(spare_nodes=1), GOOD, GOOD, BAD)
    assert story.state.members == (0, 1)
    assert warnings(story)[-1] == "preflight: excluded host2; no spare node replaces it"


def test_run_shrinks_if_it_may():
    story = answered(checking(min_nodes=1), BAD, GOOD)
    assert story.phase is Phase.BINDING
    assert story.state.members == (1,)


def test_too_few_nodes_fail_the_run_and_name_the_cause():
    story = answered(checking(), GOOD, BAD)
    assert story.outcome.ending is Ending.FAILED
    assert story.outcome.reason.startswith("preflight: host1: only 64 open files")
    assert "1 of 2 nodes are left" in story.outcome.reason
    assert story.outcome.lost_hosts == ("host1",)


def test_real_nodes_are_left_out_of_the_requeued_job():
    story = answered(checking(requeues=1, lost_host_is_reusable=False), GOOD, BAD)
    assert story.outcome.ending is Ending.REQUEUED
    assert story.outcome.lost_hosts == ("host1",)


def test_silent_node_fails():
    story = answered(checking(spare_nodes=1), GOOD, GOOD).tell(PhaseTimedOut(Phase.CHECKING))
    assert story.state.members == (0, 1)
    assert any("host2: did not finish its checks" in text for text in warnings(story))


def test_check_that_died_fails_its_node():
    story = answered(checking(spare_nodes=1), GOOD, ODD, GOOD)
    assert story.state.members == (0, 2)


def test_node_that_is_lost_during_the_check_is_replaced():
    story = answered(checking(spare_nodes=1), GOOD).tell(AgentLost(1, Loss.HOST)).hear(2, GOOD)
    assert story.state.members == (0, 2)


def test_first_node_that_ends_early_is_judged_alone():
    story = checking(spare_nodes=1).hear(0, BAD)
    assert story.phase is Phase.BINDING
    assert story.state.members == (1, 2)


@pytest.mark.parametrize("message", [MeetingOpened(port=1), GOOD])
def test_late_answers_change_nothing(message):
    story = answered(checking(), GOOD, GOOD)
    before = story.state
    assert story.hear(0, message).state == before


def test_cancel_during_the_check_ends_the_run():
    story = checking().tell(CancelRequested(15))
    assert story.outcome.ending is Ending.CANCELLED


def test_second_generation_is_not_checked():
    story = answered(checking(restarts=1), GOOD, GOOD).bind().leave(0, 1).stopped().again()
    assert story.generation == 1
    assert len(story.done(CheckNodes)) == 2
