"""What one rank does, from its stack and its process."""

from dataclasses import replace

import pytest
from hang_samples import (
    SITE,
    asleep,
    entry,
    frame,
    in_collective,
    late_rank,
    main_stack,
    process,
    recorded_ranks,
    stdlib_frame,
    torch_frame,
    waiting_rank,
)

from echelon.diagnosis.activity import Activity, ActivityKind, classify
from echelon.diagnosis.evidence import Child, Frame, ProcessState, RankEvidence, ThreadStack

K = ActivityKind


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("missing", [K.COLLECTIVE, K.OTHER, K.COLLECTIVE, K.COLLECTIVE]),
        ("backward", [K.COLLECTIVE, K.OTHER, K.COLLECTIVE]),
        ("condition", [K.COLLECTIVE, K.LOCK]),
        ("data_loader", [K.COLLECTIVE, K.DATA_LOADER]),
        ("exit_function", [K.COLLECTIVE, K.EXIT]),
        ("exit_thread", [K.COLLECTIVE, K.EXIT]),
        ("file_lock", [K.COLLECTIVE, K.FILE]),
        ("file_open", [K.COLLECTIVE, K.FILE]),
        ("init", [K.JOIN, K.OTHER]),
        ("lock", [K.LOCK, K.COLLECTIVE]),
        ("main_first", [K.OTHER, K.MAIN_FIRST, K.MAIN_FIRST]),
        ("monitored", [K.COLLECTIVE, K.OTHER, K.COLLECTIVE]),
        ("recv", [K.OTHER, K.MESSAGE, K.COLLECTIVE]),
        ("spin", [K.COLLECTIVE, K.RUNNING]),
        ("stopped", [K.COLLECTIVE, K.STOPPED, K.COLLECTIVE]),
    ],
)
def test_recorded_ranks_are_classified(name, kinds):
    assert [classify(one).kind for one in recorded_ranks(name)] == kinds


def of(*frames, state=None, pending=False, children=(), module=True):
    stack = main_stack(*frames) if module else ThreadStack(frames=frames, is_main=True)
    entries = (entry(4, pending=True),) if pending else ()
    return classify(
        RankEvidence(rank=0, process=state or process(), threads=(stack,), collectives=entries, children=children)
    )


LOADER = (
    stdlib_frame("multiprocessing/queues.py:113", "get"),
    torch_frame("utils/data/dataloader.py:1291", "_try_get_data"),
    torch_frame("utils/data/dataloader.py:1505", "_next_data"),
    frame("train.py:24"),
)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ((torch_frame("distributed/distributed_c10d.py:9", "recv"), frame("a.py:5")), (K.MESSAGE, "recv", "a.py:5")),
        (
            (torch_frame("distributed/distributed_c10d.py:9", "new_group"), frame("a.py:5")),
            (K.JOIN, "new_group", "a.py:5"),
        ),
        (
            (
                torch_frame("distributed/distributed_c10d.py:9", "all_gather"),
                torch_frame("distributed/c10d_logger.py:83", "wrapper"),
                torch_frame("distributed/distributed_c10d.py:19", "all_gather_object"),
                frame("a.py:5"),
            ),
            (K.COLLECTIVE, "all_gather_object", "a.py:5"),
        ),
        (
            (
                torch_frame("distributed/distributed_c10d.py:9", "barrier"),
                frame("transformers/trainer.py:100", "train", folder=SITE),
                frame("a.py:5"),
            ),
            (K.COLLECTIVE, "barrier", "a.py:5"),
        ),
        (
            (Frame(file="/r/echelon.pyz/echelon/train/store.py", line=2, function="poll_until"), frame("a.py:5")),
            (K.JOIN, "poll_until", "a.py:5"),
        ),
    ],
)
def test_wait_for_ranks_is_known_by_the_library_frames(frames, expected):
    found = of(*frames)
    assert (found.kind, found.operation, found.location) == expected
    assert found.waits_for_ranks


def test_user_code_inside_of_a_library_does_not_wait_for_ranks():
    frames = (frame("hook.py:7", "hook", "time.sleep"), torch_frame("distributed/distributed_c10d.py:9", "all_reduce"))
    assert of(*frames).kind is K.OTHER


@pytest.mark.parametrize(
    ("frames", "state", "kind"),
    [
        ((frame("a.py:5", call="work.wait"),), process(), K.COLLECTIVE),
        ((frame("a.py:5", call="loss.item"),), process("R", ""), K.COLLECTIVE),
        ((torch_frame("autograd/graph.py:979", "_engine_run_backward"), frame("a.py:5")), process(), K.COLLECTIVE),
        ((frame("a.py:5", call="time.sleep"),), process(system_call="clock_nanosleep"), K.OTHER),
        ((frame("a.py:5"),), process(system_call="clock_nanosleep"), K.OTHER),
        (LOADER, process(system_call="poll"), K.DATA_LOADER),
        ((frame("a.py:5", call="file.read"),), process("D", "read", "/data/a"), K.FILE),
    ],
)
def test_pending_collective_counts_unless_the_rank_is_elsewhere(frames, state, kind):
    assert of(*frames, state=state, pending=True).kind is kind


def test_pending_collective_without_stack_is_a_wait():
    assert classify(replace(waiting_rank(0), threads=())).kind is K.COLLECTIVE


def test_rank_without_any_evidence_is_unknown():
    assert classify(RankEvidence(rank=0)) == Activity(kind=K.UNKNOWN)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (process("D", "read", "/data/shard-7"), K.FILE),
        (process("D", "", "", "nfs_wait_bit_killable"), K.FILE),
        (process("S", "openat", "/data/shard-7"), K.FILE),
        (process("S", "read", "/dev/shm/torch_1"), K.FILE),
        (process("S", "read", "pipe:[77]"), K.OTHER),
        (process("S", "read", "socket:[77]"), K.OTHER),
        (process("S", "read", "/dev/null"), K.OTHER),
        (process("R", "read", "/data/shard-7"), K.RUNNING),
        (process("T", "read", "/data/shard-7"), K.STOPPED),
        (process("t", "", ""), K.STOPPED),
    ],
)
def test_state_and_path_show_file_io(state, kind):
    assert of(frame("dataset.py:88"), state=state).kind is kind


@pytest.mark.parametrize(
    ("frames", "state", "kind"),
    [
        ((stdlib_frame("threading.py:327", "wait"), frame("a.py:5")), process(), K.LOCK),
        ((stdlib_frame("queue.py:171", "get"), frame("a.py:5")), process(), K.LOCK),
        ((stdlib_frame("concurrent/futures/_base.py:451", "result"), frame("a.py:5")), process(), K.LOCK),
        ((frame("a.py:5", call="with lock"),), process(), K.LOCK),
        ((frame("a.py:5", call="self.lock.acquire"),), process(), K.LOCK),
        ((frame("a.py:5", call="with lock"),), process(system_call="read"), K.OTHER),
        ((frame("a.py:5", call="compute"),), process(), K.OTHER),
        ((frame("a.py:5", call="lock.acquire"),), process("R", ""), K.RUNNING),
    ],
)
def test_locks_are_known_by_frame_or_call(frames, state, kind):
    assert of(*frames, state=state).kind is kind


@pytest.mark.parametrize(
    ("frames", "location"),
    [
        ((stdlib_frame("threading.py:1590", "_shutdown"),), "threading._shutdown"),
        ((frame("upload.py:7", "flush", "time.sleep"),), "upload.py:7 (time.sleep)"),
        ((stdlib_frame("multiprocessing/util.py:360", "_exit_function"),), "util._exit_function"),
        (
            (Frame(file="/r/echelon.pyz/echelon/agent/rank_exit.py", line=9, function="_before_finalization"),),
            "rank_exit._before_finalization",
        ),
        ((), "the system call futex"),
    ],
)
def test_stack_without_the_script_is_an_exit(frames, location):
    assert of(*frames, module=False) == Activity(kind=K.EXIT, location=location)


def test_exit_names_the_thread_that_python_waits_for():
    one = late_rank(0, thread=ThreadStack(frames=(stdlib_frame("threading.py:1590", "_shutdown"),), is_main=True))
    thread = ThreadStack(frames=(frame("upload.py:7", "run", "time.sleep"),))
    found = classify(replace(one, threads=(thread, *one.threads)))
    assert found.location == "threading._shutdown, which waits for a thread in upload.py:7 (time.sleep)"


def test_cut_stack_is_not_an_exit():
    thread = ThreadStack(frames=(frame("a.py:5"),) * 100, is_main=True, is_truncated=True)
    assert classify(late_rank(0, thread=thread)).kind is K.OTHER


def worker(*frames, state="S", call="clock_nanosleep", name="pt_data_worker", path=""):
    loop = torch_frame("utils/data/_utils/worker.py:374", "_worker_loop")
    threads = (ThreadStack(frames=(*frames, loop), is_main=True),) if frames else ()
    return Child(process=ProcessState(pid=77, state=state, system_call=call, name=name, path=path), threads=threads)


IDLE = worker(
    stdlib_frame("selectors.py:415", "select"), stdlib_frame("multiprocessing/queues.py:113", "get"), call="poll"
)
BUSY = worker(
    frame("dataset.py:18", "__getitem__", "time.sleep"), torch_frame("utils/data/_utils/fetch.py:54", "fetch")
)


@pytest.mark.parametrize(
    ("children", "location", "pid"),
    [
        ((), "train.py:24", None),
        ((IDLE, IDLE), "train.py:24", None),
        ((IDLE, BUSY), "dataset.py:18 (time.sleep)", 77),
        ((worker(),), "the system call clock_nanosleep", 77),
        ((worker(call="poll"),), "train.py:24", None),
        ((worker(name="python3.14", call="read"),), "train.py:24", None),
        ((worker(state="T", call=""),), "", 77),
    ],
)
def test_busy_worker_of_a_data_loader_is_named(children, location, pid):
    found = of(*LOADER, children=children)
    assert (found.kind, found.location, found.worker) == (K.DATA_LOADER, location, pid)


def test_worker_in_file_io_names_the_file():
    found = of(*LOADER, children=(worker(state="D", call="read", path="/data/shard-7"),))
    assert (found.path, found.location) == ("/data/shard-7", "the system call read")


def test_dataset_in_the_rank_itself_is_not_a_worker():
    frames = (
        frame("dataset.py:88", "__getitem__", "time.sleep"),
        torch_frame("utils/data/dataloader.py:789", "_next_data"),
    )
    assert of(*frames).kind is K.OTHER


def test_stopped_rank_is_stopped_wherever_it_is():
    assert classify(replace(waiting_rank(0), process=process("T"))).kind is K.STOPPED


def test_only_places_outside_of_collectives_have_their_call():
    assert classify(replace(waiting_rank(0), threads=(in_collective(place="train.py:61"),))).location == "train.py:61"
    assert classify(late_rank(0, thread=asleep("dataset.py:88"))).location == "dataset.py:88 (time.sleep)"
