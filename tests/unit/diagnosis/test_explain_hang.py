"""The verdict on a hang, from recordings of real ones and from plain values."""

from dataclasses import replace

import pytest
from hang_samples import (
    asleep,
    entry,
    frame,
    in_collective,
    late_rank,
    main_stack,
    process,
    recorded_ranks,
    stdlib_frame,
    waiting_rank,
)

from echelon.codec import decode, encode
from echelon.diagnosis.evidence import GroupStatus, ProcessState, RankEvidence, ThreadStack
from echelon.diagnosis.hangs import HINTS, HangCause, HangVerdict, explain_hang

C = HangCause


def explain(ranks, **more):
    return explain_hang(ranks, idle_seconds=41.0, **more)


def test_details_group_ranks_by_activity():
    assert explain(recorded_ranks("missing")).details == (
        "ranks 0, 2, 3: waiting in all_reduce at missing.py:19",
        "rank 1: in missing.py:12 (time.sleep)",
    )


def test_missing_ranks_in_one_place_are_named_together():
    ranks = [waiting_rank(0), waiting_rank(1), late_rank(4), late_rank(5)]
    found = explain(ranks)
    assert found.culprits == (4, 5)
    assert found.sentence == (
        "ranks 4, 5 on n1 did not reach all_reduce #12 of the default group (16 B float32); "
        "they have been in dataset.py:88 (time.sleep) for 41 s; 2 ranks wait"
    )


def test_missing_ranks_in_different_places_show_the_first():
    ranks = [waiting_rank(0), late_rank(1), late_rank(5, thread=asleep("eval.py:9"))]
    assert explain(ranks).sentence == (
        "ranks 1, 5 did not reach all_reduce #12 of the default group (16 B float32); "
        "rank 1 has been in dataset.py:88 (time.sleep) for 41 s; rank 0 waits"
    )


def test_many_missing_ranks_are_shortened():
    ranks = [waiting_rank(0), *(late_rank(rank) for rank in range(1, 100, 2))]
    assert explain(ranks).sentence.startswith("ranks 1, 3, 5, 7, 9, 11, 13, 15, ... did not reach")


def test_missing_rank_that_waits_elsewhere_is_not_blamed():
    """Rank 1 waits for rank 2 in another group; rank 0 waits for rank 1."""
    pair = GroupStatus(group="3", description="tp", last_enqueued=5, last_completed=4)
    between = replace(
        late_rank(1),
        groups=(*late_rank(1).groups, pair),
        collectives=(entry(11), entry(5, "broadcast", group="3", pending=True)),
        threads=(in_collective("broadcast"),),
        process=process(),
    )
    asleep_rank = replace(late_rank(2), groups=(*late_rank(2).groups, replace(pair, last_enqueued=4)))
    found = explain([waiting_rank(0), between, asleep_rank])
    assert (found.cause, found.culprits) == (C.MISSING, (2,))


def test_stopped_rank_is_named_before_all_others():
    found = explain([waiting_rank(0), late_rank(1), late_rank(2, state=process("T", ""))])
    assert (found.cause, found.culprits) == (C.STOPPED, (2,))


def test_file_io_of_the_missing_rank_names_the_file():
    late = late_rank(
        1, thread=main_stack(frame("dataset.py:88", call="file.read")), state=process("D", "read", "/data/a")
    )
    found = explain([waiting_rank(0), late])
    assert found.cause is C.FILE
    assert "it has been in read on /data/a at dataset.py:88 (file.read) for 41 s" in found.sentence


def test_uninterruptible_wait_without_stack_and_path():
    found = explain([waiting_rank(0), replace(late_rank(1), threads=(), process=process("D", "read"))])
    assert found.cause is C.FILE
    assert "it has been in uninterruptible read for 41 s" in found.sentence


def test_rank_that_exited_before_a_collective_is_the_cause():
    found = explain([waiting_rank(0), waiting_rank(2)], finished=[1])
    assert (found.cause, found.culprits) == (C.FINISHED, (1,))
    assert found.sentence == (
        "rank 1 exited without reaching all_reduce #12 of the default group (16 B float32); 2 ranks wait"
    )


def test_collective_that_all_ranks_reached_blames_none():
    found = explain([waiting_rank(0), waiting_rank(1)])
    assert (found.cause, found.culprits) == (C.INCOMPLETE, ())
    assert found.sentence == (
        "ranks 0, 1 on n0 reached all_reduce #12 of the default group (16 B float32), but it does not complete"
    )


def test_rank_without_evidence_is_named_if_all_others_wait():
    found = explain([waiting_rank(0), waiting_rank(1), RankEvidence(rank=5, host="n1")])
    assert (found.cause, found.culprits) == (C.UNKNOWN, (5,))
    assert found.sentence == (
        "rank 5 on n1 has no known stack; 2 ranks wait in all_reduce #12 of the default group (16 B float32)"
    )


def test_rank_without_evidence_is_not_blamed_beside_a_known_one():
    found = explain([waiting_rank(0), replace(late_rank(1), has_flight=False, groups=()), RankEvidence(rank=5)])
    assert found.culprits == (1,)


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        (7, "no progress for 41 s: no new step from ranks 0-2"),
        (None, "no progress for 41 s: no output and no CPU time from ranks 0-2"),
    ],
)
def test_verdict_without_evidence_names_the_idle_ranks(step, sentence):
    found = explain([RankEvidence(rank=rank, step=step) for rank in range(3)])
    assert (found.cause, found.culprits, found.sentence) == (C.UNKNOWN, (), sentence)


def test_single_rank_in_a_lock_is_explained():
    thread = main_stack(stdlib_frame("threading.py:327", "wait"), frame("cache.py:30"))
    found = explain(
        [replace(late_rank(0, thread=thread, state=process()), has_flight=False, groups=(), collectives=())]
    )
    assert (found.cause, found.culprits) == (C.LOCK, (0,))
    assert found.sentence == "rank 0 on n0 has waited for a lock at cache.py:30 (threading.wait) for 41 s"


def test_idle_time_of_the_rank_is_preferred():
    found = explain_hang([waiting_rank(0), late_rank(1, idle_seconds=65.4)], idle_seconds=41.0)
    assert "for 65 s" in found.sentence


def test_main_first_of_a_node_names_its_first_rank():
    waiting = [one for one in recorded_ranks("main_first") if one.rank == 1]
    ranks = [
        replace(waiting[0], rank=5, host="n1"),
        replace(waiting[0], rank=1, host="n0"),
        waiting_rank(0),
        late_rank(4, host="n1"),
    ]
    found = explain(ranks)
    assert (found.cause, found.culprits) == (C.MAIN_FIRST, (4,))


def test_main_first_while_rank_0_waits_is_a_mismatch():
    waiting = [replace(one, groups=(), collectives=(), has_flight=False) for one in recorded_ranks("main_first")[1:]]
    found = explain([replace(waiting_rank(0, operation="barrier")), *waiting])
    assert (found.cause, found.culprits) == (C.MISMATCH, (0,))
    assert "rank 0 in barrier #12 of the default group at train.py:61, ranks 1, 2 in main_first" in found.sentence


def at_exit(rank, state):
    stack = ThreadStack(is_main=True)
    facts = ProcessState(pid=1, state=state, system_call="" if state == "R" else "clock_nanosleep")
    return replace(late_rank(rank), threads=(stack,), process=facts)


def test_rank_that_sleeps_at_exit_is_named_not_busy_ones():
    found = explain([at_exit(0, "R"), at_exit(1, "S"), at_exit(2, "R")])
    assert (found.cause, found.culprits) == (C.EXIT, (1,))
    assert "in the system call clock_nanosleep" in found.sentence


def test_ranks_that_are_all_busy_at_exit_are_named():
    assert explain([at_exit(0, "R"), at_exit(1, "R")]).culprits == (0, 1)


def in_recv(rank):
    stack = in_collective("recv", "train.py:40")
    return replace(late_rank(rank), threads=(stack,), groups=(), collectives=(), has_flight=False)


def test_one_rank_in_recv_while_most_ranks_reduce_is_named():
    found = explain([in_recv(1), *(waiting_rank(rank) for rank in (0, 2, 3))])
    assert (found.cause, found.culprits) == (C.MESSAGE, (1,))
    assert "rank 1 in recv at train.py:40" in found.sentence


def test_equally_large_groups_name_no_rank():
    found = explain([in_recv(1), in_recv(3), *(waiting_rank(rank) for rank in (0, 2))])
    assert (found.cause, found.culprits) == (C.MESSAGE, ())


def test_unanswered_message_names_the_peer():
    recv = entry(3, "recv 1<-0", is_p2p=True, pending=True)
    waiting = replace(
        late_rank(1),
        collectives=(recv,),
        threads=(main_stack(frame("pipe.py:5", call="work.wait")),),
        process=process(),
    )
    found = explain([late_rank(0), waiting])
    assert (found.cause, found.culprits) == (C.MESSAGE, (0,))
    assert found.sentence == (
        "rank 0 on n0 did not call the counterpart of recv 1<-0 on rank 1; "
        "it has been in dataset.py:88 (time.sleep) for 41 s; rank 1 waits"
    )


def test_group_names_are_short():
    group = GroupStatus(group="ad56679d2c95f00a464e146ac76c2deb475d8262", description="undefined", last_enqueued=2)
    waiting = replace(waiting_rank(0), groups=(group,), collectives=(entry(2, group=group.group, pending=True),))
    late = replace(late_rank(1), groups=(replace(group, last_enqueued=1),), collectives=(entry(1, group=group.group),))
    assert "did not reach all_reduce #2 of group ad56679d (16 B float32)" in explain([waiting, late]).sentence


def test_every_cause_has_a_hint():
    assert set(HINTS) == set(HangCause)
    assert explain(recorded_ranks("past")).hint == HINTS[C.NOT_COLLECTIVE]


def test_verdict_is_unchanged_by_the_codec():
    found = explain(recorded_ranks("subgroup"))
    assert decode(HangVerdict, encode(found)) == found


def test_verdict_without_ranks_is_possible():
    assert explain([]).sentence == "no progress for 41 s: no output and no CPU time from no ranks"
