"""Evidence for the tests: recordings of real hangs, and ranks made of plain values."""

import json
from functools import cache
from pathlib import Path

from echelon.codec import decode
from echelon.diagnosis.evidence import Collective, Frame, GroupStatus, ProcessState, RankEvidence, ThreadStack

RECORDED = Path(__file__).parents[2] / "recorded"
TORCH = "torch2.13.0-py3.11"
SITE = "/venv/lib/python3.11/site-packages"
STDLIB = "/usr/lib/python3.11"
PROJECT = "/home/user/project"


@cache
def recording(name, version=TORCH):
    """Evidence, stacks and flight recorder of each rank, as an agent collected them."""
    return json.loads((RECORDED / "flight" / f"{name}-{version}.json").read_text())["ranks"]


def recorded_ranks(name, version=TORCH):
    return [decode(RankEvidence, rank["evidence"]) for rank in recording(name, version)]


def frame(place, function="step", call="", folder=PROJECT):
    """A frame from `train.py:61`."""
    file, _, line = place.partition(":")
    return Frame(file=f"{folder}/{file}", line=int(line), function=function, call=call)


MODULE = frame("train.py:90", "<module>")


def main_stack(*frames):
    """A main thread with the script as its outermost frame."""
    return ThreadStack(frames=(*frames, MODULE), is_main=True)


def torch_frame(place, function):
    return frame(place, function, folder=f"{SITE}/torch")


def stdlib_frame(place, function):
    return frame(place, function, folder=STDLIB)


def in_collective(operation="all_reduce", place="train.py:61"):
    return main_stack(
        torch_frame("distributed/distributed_c10d.py:3252", operation),
        torch_frame("distributed/c10d_logger.py:83", "wrapper"),
        frame(place),
    )


def asleep(place="dataset.py:88"):
    return main_stack(frame(place, "load", "time.sleep"))


def process(state="S", system_call="futex", path="", wait_channel="", name="python"):
    return ProcessState(pid=100, state=state, system_call=system_call, path=path, wait_channel=wait_channel, name=name)


def entry(sequence, operation="all_reduce", group="0", sizes=((4,),), pending=False, **more):
    return Collective(
        group=group,
        sequence=sequence,
        operation=operation,
        sizes=sizes,
        dtypes=("float32",),
        byte_count=16,
        pending=pending,
        **more,
    )


def default_group(last, completed=None):
    return GroupStatus(
        group="0", description="default_pg", last_enqueued=last, last_completed=last if completed is None else completed
    )


def waiting_rank(rank, sequence=12, operation="all_reduce", **more):
    """A rank whose newest collective is pending."""
    return RankEvidence(
        rank=rank,
        host=f"n{rank // 4}",
        process=process(),
        threads=(in_collective(operation),),
        groups=(default_group(sequence, sequence - 1),),
        collectives=(entry(sequence - 1, operation), entry(sequence, operation, pending=True)),
        has_flight=True,
        **more,
    )


def late_rank(rank, sequence=11, thread=None, state=None, **more):
    """A rank that has completed all its collectives and is somewhere else."""
    values = {"host": f"n{rank // 4}", "idle_seconds": 41.0, **more}
    return RankEvidence(
        rank=rank,
        process=state or process(system_call="clock_nanosleep"),
        threads=(asleep() if thread is None else thread,),
        groups=(default_group(sequence),),
        collectives=(entry(sequence),),
        has_flight=True,
        **values,
    )
