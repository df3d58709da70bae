"""Which ranks are missing at a collective, and which called another one."""

from dataclasses import replace

import pytest
from hang_samples import default_group, entry, late_rank, recorded_ranks, waiting_rank

from echelon.diagnosis.evidence import GroupStatus, RankEvidence
from echelon.diagnosis.matching import (
    find_message_waits,
    find_mismatch,
    find_waits,
    first_pending,
    last_common,
)


@pytest.mark.parametrize(
    ("name", "operation", "number", "waiting", "missing"),
    [
        ("missing", "all_reduce", 4, (0, 2, 3), (1,)),
        ("backward", "all_reduce", 11, (0, 2), (1,)),
        ("data_loader", "all_reduce", 6, (0,), (1,)),
        ("lock", "barrier", 4, (1,), (0,)),
        ("subgroup", "barrier", 4, (0, 1), (2, 3)),
        ("subgroup_first", "all_reduce", 1, (2,), ()),
        ("mismatched_size", "all_reduce", 4, (0, 1), (2,)),
        ("mismatched_operation", "all_reduce", 4, (0, 1, 2), ()),
    ],
)
def test_recorded_wait_names_the_missing_ranks(name, operation, number, waiting, missing):
    wait = find_waits(recorded_ranks(name))[0]
    found = (wait.collective.operation, wait.collective.sequence, wait.waiting, wait.missing)
    assert found == (operation, number, waiting, missing)


def test_each_group_has_its_own_wait():
    waits = find_waits(recorded_ranks("subgroup"))
    assert [(wait.group.description, wait.missing) for wait in waits] == [("default_pg", (2, 3)), ("pair b", (3,))]


@pytest.mark.parametrize("name", ["past", "main_first", "monitored", "init"])
def test_recording_without_pending_collective_has_no_wait(name):
    assert find_waits(recorded_ranks(name)) == ()


def test_rank_without_collectives_is_missing_in_default_group():
    silent = RankEvidence(rank=1, has_flight=True)
    assert find_waits([waiting_rank(0), silent])[0].missing == (1,)


def test_rank_without_recorder_is_not_called_missing():
    assert find_waits([waiting_rank(0), RankEvidence(rank=1)])[0].missing == ()


def test_rank_ahead_of_the_pending_collective_is_not_missing():
    assert find_waits([waiting_rank(0, 12), waiting_rank(1, 13), late_rank(2, 11)])[0].missing == (2,)


def test_recorded_members_are_missing_before_their_first_call():
    group = GroupStatus(group="7", description="tp", last_enqueued=1, ranks=(0, 2))
    waiting = RankEvidence(rank=0, groups=(group,), collectives=(entry(1, group="7", pending=True),), has_flight=True)
    others = [RankEvidence(rank=rank, has_flight=True) for rank in (1, 2)]
    assert find_waits([waiting, *others])[0].missing == (2,)


def test_groups_with_one_name_and_other_members_are_different():
    ranks = [
        RankEvidence(
            rank=rank,
            groups=(GroupStatus(group="7", last_enqueued=last, ranks=members),),
            collectives=(entry(last, group="7", pending=last == 9),),
            has_flight=True,
        )
        for rank, last, members in ((0, 9, (0, 1)), (1, 9, (0, 1)), (2, 3, (2, 3)), (3, 3, (2, 3)))
    ]
    (wait,) = find_waits(ranks)
    assert (wait.waiting, wait.missing) == ((0, 1), ())


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("mismatched_operation", [("all_reduce", (0, 1)), ("broadcast", (2,))]),
        ("mismatched_size", [("all_reduce", (0,)), ("all_reduce", (1,))]),
        ("mismatched_dtype", [("all_reduce", (0,)), ("all_reduce", (1,))]),
    ],
)
def test_recorded_mismatch_lists_the_most_common_call_first(name, calls):
    found = find_mismatch(recorded_ranks(name))
    assert [(call.collective.operation, call.ranks) for call in found.calls] == calls


@pytest.mark.parametrize("name", ["missing", "backward", "subgroup", "group_order", "past", "data_loader", "recv"])
def test_recording_without_mismatch_has_none(name):
    assert find_mismatch(recorded_ranks(name)) is None


def test_call_that_has_completed_still_counts_for_a_mismatch():
    """The root of a broadcast returns at once and goes on to the next collective."""
    ahead = waiting_rank(2, 13)
    root = replace(ahead, collectives=(entry(12, "broadcast"), entry(13, "all_reduce", pending=True)))
    found = find_mismatch([waiting_rank(0, 12), waiting_rank(1, 12), root])
    assert [(call.collective.operation, call.ranks) for call in found.calls] == [
        ("all_reduce", (0, 1)),
        ("broadcast", (2,)),
    ]


@pytest.mark.parametrize("operation", ["all_to_all", "alltoall_base", "all_gather_v", "coalesced"])
def test_operations_with_unequal_shapes_do_not_mismatch(operation):
    ranks = [
        replace(waiting_rank(rank), collectives=(entry(12, operation, sizes=((rank + 1,),), pending=True),))
        for rank in range(3)
    ]
    assert find_mismatch(ranks) is None


def message(rank, *operations, members=()):
    entries = [entry(number, text, is_p2p=True, pending=pending) for number, text, pending in operations]
    group = GroupStatus(group="0", description="default_pg", ranks=members)
    return RankEvidence(rank=rank, groups=(group,), collectives=tuple(entries), has_flight=True)


@pytest.mark.parametrize(
    ("peer", "matched"),
    [
        (message(0), False),
        (message(0, (1, "send 0->1", True)), True),
        (message(0, (1, "send 0->2", True)), False),
        (message(0, (1, "recv 0<-1", True)), False),
    ],
)
def test_recv_is_matched_by_the_send_of_its_peer(peer, matched):
    (wait,) = [wait for wait in find_message_waits([peer, message(1, (1, "recv 1<-0", True))]) if wait.rank == 1]
    assert (wait.peer, wait.is_matched) == (0, matched)


def test_message_that_was_sent_before_is_not_its_match():
    waits = find_message_waits([message(0, (1, "send 0->1", False)), message(1, (2, "recv 1<-0", True))])
    assert [wait.is_matched for wait in waits] == [False]


def test_messages_name_ranks_within_the_group():
    (wait,) = find_message_waits([message(6, (1, "recv 1<-0", True), members=(4, 6))])
    assert wait.peer == 4


def test_last_common_collective_is_the_one_of_the_slowest_rank():
    slow = replace(late_rank(1, 9), collectives=(entry(8), entry(9, "broadcast")))
    fast = replace(late_rank(0, 11), collectives=tuple(entry(number) for number in range(7, 12)))
    group, found = last_common([fast, slow])
    assert (group.group, found.sequence) == ("0", 9)


@pytest.mark.parametrize("ranks", [[], [RankEvidence(rank=0)], [waiting_rank(0)], [late_rank(0), RankEvidence(rank=1)]])
def test_no_common_collective_without_evidence_of_all(ranks):
    assert last_common(ranks) is None


def test_first_pending_collective_has_its_group():
    group, found = first_pending(waiting_rank(3, 12))
    assert (group, found.sequence) == (default_group(12, 11), 12)
    assert first_pending(late_rank(3)) is None
