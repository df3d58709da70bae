"""The verdicts on real hangs, which tests/recorded/record_hangs.py has recorded."""

import pytest
from hang_samples import recorded_ranks

from echelon.diagnosis.activity import classify
from echelon.diagnosis.hangs import HangCause, explain_hang

C = HangCause


def explain(ranks):
    return explain_hang(ranks, idle_seconds=41.0)


RECORDED = [
    (
        "missing",
        C.MISSING,
        (1,),
        "rank 1 on n0 did not reach all_reduce #4 of the default group (12 MiB float32); it has been in missing.py:12 (time.sleep) for 41 s; 3 ranks wait",
    ),
    (
        "backward",
        C.MISSING,
        (1,),
        "rank 1 on n0 did not reach all_reduce #11 of the default group (16.2 KiB float32); it has been in backward.py:21 (time.sleep) for 41 s; 2 ranks wait",
    ),
    (
        "spin",
        C.MISSING,
        (1,),
        "rank 1 on n0 did not reach all_reduce #4 of the default group (16 B float32); it has been running in spin.py:9 for 41 s; rank 0 waits",
    ),
    (
        "subgroup",
        C.MISSING,
        (3,),
        "rank 3 on n1 did not reach barrier #4 of the default group; it has been in subgroup.py:15 (time.sleep) for 41 s; 3 ranks wait",
    ),
    (
        "subgroup_first",
        C.MISSING,
        (0, 1, 3),
        "ranks 0, 1, 3 are not in a collective; rank 0 has been in subgroup_first.py:15 (time.sleep) for 41 s; rank 2 waits in all_reduce #1 of group 2 (32 B float32)",
    ),
    (
        "recv",
        C.MISSING,
        (0,),
        "rank 0 on n0 did not reach barrier #4 of the default group; it has been in recv.py:14 (time.sleep) for 41 s; 2 ranks wait",
    ),
    (
        "monitored",
        C.MISSING,
        (1,),
        "rank 1 on n0 has been in monitored.py:12 (time.sleep) for 41 s; 2 ranks wait in monitored_barrier",
    ),
    (
        "init",
        C.MISSING,
        (1,),
        "rank 1 on n0 has been in init.py:9 (time.sleep) for 41 s; rank 0 waits in init_process_group",
    ),
    (
        "mismatched_operation",
        C.MISMATCH,
        (2,),
        "rank 2 on n1 called broadcast as #4 of the default group, ranks 0, 1 called all_reduce",
    ),
    (
        "mismatched_size",
        C.MISMATCH,
        (0, 1),
        "rank 1 on n0 called all_reduce #4 of the default group with 1000000 float32, rank 0 with 4000000 float32",
    ),
    (
        "mismatched_dtype",
        C.MISMATCH,
        (0, 1),
        "rank 1 on n0 called all_reduce #4 of the default group with 1000000 float32, rank 0 with 1000000 float64",
    ),
    (
        "group_order",
        C.MISMATCH,
        (),
        "the ranks wait for each other: rank 0 in all_reduce #2 of group 'first' at group_order.py:13, rank 1 in all_reduce #2 of group 'second' at group_order.py:13",
    ),
    (
        "recv_all_wait",
        C.MESSAGE,
        (),
        "the ranks wait for each other: rank 0 in barrier #4 of the default group at recv_all_wait.py:11, rank 1 in recv at recv_all_wait.py:10",
    ),
    (
        "lock",
        C.LOCK,
        (0,),
        "rank 0 on n0 did not reach barrier #4 of the default group; it has waited for a lock at lock.py:12 (with lock) for 41 s; rank 1 waits",
    ),
    (
        "condition",
        C.LOCK,
        (1,),
        "rank 1 on n0 did not reach barrier #4 of the default group; it has waited for a lock at condition.py:11 (get) for 41 s; rank 0 waits",
    ),
    (
        "file_open",
        C.FILE,
        (1,),
        "rank 1 on n0 did not reach barrier #4 of the default group; it has been in openat on /scratch/shard-7.bin at file_open.py:12 (os.open) for 41 s; rank 0 waits",
    ),
    (
        "file_lock",
        C.FILE,
        (1,),
        "rank 1 on n0 did not reach barrier #5 of the default group; it has been waiting for a lock on the file /scratch/cache.lock at file_lock.py:16 (fcntl.flock) for 41 s; rank 0 waits",
    ),
    (
        "stopped",
        C.STOPPED,
        (1,),
        "rank 1 on n0 is stopped by a signal (SIGSTOP); 2 ranks wait in barrier #4 of the default group",
    ),
    (
        "exit_function",
        C.EXIT,
        (1,),
        "rank 1 on n0 did not reach barrier #4 of the default group; it has not exited for 41 s after the end of the script, in exit_function.py:12 (time.sleep); rank 0 waits",
    ),
    (
        "exit_thread",
        C.EXIT,
        (1,),
        "rank 1 on n0 did not reach barrier #4 of the default group; it has not exited for 41 s after the end of the script, in threading._shutdown, which waits for a thread in exit_thread.py:11 (time.sleep); rank 0 waits",
    ),
    (
        "main_first",
        C.MAIN_FIRST,
        (0,),
        "rank 0 on n0 has been in main_first.py:13 (time.sleep) for 41 s; 2 ranks wait for it in main_first",
    ),
    (
        "past",
        C.NOT_COLLECTIVE,
        (0, 1),
        "not a collective: all ranks are past all_reduce #3 of the default group; ranks 0, 1 on n0 have been in past.py:9 (time.sleep) for 41 s",
    ),
]


@pytest.mark.parametrize(("name", "cause", "culprits", "sentence"), RECORDED, ids=[case[0] for case in RECORDED])
def test_recorded_hang_is_explained(name, cause, culprits, sentence):
    found = explain(recorded_ranks(name))
    assert (found.cause, found.culprits, found.sentence) == (cause, culprits, sentence)


@pytest.mark.parametrize(
    ("name", "version", "cause", "part"),
    [
        (
            "missing",
            "torch2.3.1-py3.10",
            C.MISSING,
            "rank 1 on n0 has been in missing.py:12 (time.sleep) for 41 s; 3 ranks wait in all_reduce",
        ),
        (
            "missing",
            "torch2.15.0-py3.14",
            C.MISSING,
            "rank 1 on n0 did not reach all_reduce #4 of the default group (12 MiB",
        ),
        (
            "exit_thread",
            "torch2.3.1-py3.10",
            C.EXIT,
            "rank 1 on n0 has not exited for 41 s after the end of the script",
        ),
        ("exit_thread", "torch2.15.0-py3.14", C.EXIT, "rank 1 on n0 did not reach barrier #4 of the default group"),
        (
            "data_loader",
            "torch2.3.1-py3.10",
            C.DATA_LOADER,
            "which has been in data_loader.py:18 (time.sleep) for 41 s",
        ),
        (
            "data_loader",
            "torch2.13.0-py3.11",
            C.DATA_LOADER,
            "which has been in data_loader.py:18 (time.sleep) for 41 s",
        ),
        (
            "data_loader",
            "torch2.15.0-py3.14",
            C.DATA_LOADER,
            "which has been in the system call clock_nanosleep for 41 s",
        ),
    ],
)
def test_other_versions_of_torch_are_explained(name, version, cause, part):
    found = explain(recorded_ranks(name, version))
    assert (found.cause, found.culprits) == (cause, (1,))
    assert part in found.sentence


@pytest.mark.parametrize("name", [case[0] for case in RECORDED if case[1] is not C.MISMATCH])
def test_rank_that_waits_is_never_the_culprit(name):
    waiting = {one.rank for one in recorded_ranks(name) if classify(one).waits_for_ranks}
    assert not waiting & set(explain(recorded_ranks(name)).culprits)
