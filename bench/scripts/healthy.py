"""A training without a fault, in one of several shapes, for a number of seconds: healthy.py SHAPE SECONDS.

By hand: RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 python healthy.py slow_save 20
"""

import random
import sys
import time

import torch
import torch.distributed as dist

import echelon

LONGEST_SILENCE = 300
"""Seconds. An evaluation of five minutes is ordinary."""


def slow_start(step, seconds):
    """The first step compiles."""
    if step == 0:
        time.sleep(min(LONGEST_SILENCE, 0.5 * seconds))
    time.sleep(0.1)


def evaluation(step, seconds, ranks=None):
    """After some steps all ranks, or these, evaluate and report nothing."""
    time.sleep(0.1)
    if step == 40 and (ranks is None or dist.get_rank() in ranks):
        time.sleep(min(LONGEST_SILENCE, 0.6 * seconds))


def evaluation_on_rank_0(step, seconds):
    """The other ranks wait in the next all_reduce."""
    evaluation(step, seconds, ranks=(0,))


def slow_save(step, seconds):
    """Rank 0 saves alone, the other ranks wait in a barrier."""
    time.sleep(0.2)
    if step % 20 == 19:
        if dist.get_rank() == 0:
            time.sleep(min(LONGEST_SILENCE, 0.2 * seconds))
        dist.barrier()


def uneven_input(_step, seconds):
    """Each rank waits for its batch, sometimes for a long time."""
    time.sleep(random.uniform(0, 0.5))
    if random.random() < 0.02:
        time.sleep(min(20.0, 0.1 * seconds))


def one_second_steps(_step, _seconds):
    time.sleep(1.0)


def no_reports(_step, _seconds):
    """No step is reported and no line is printed."""
    time.sleep(0.5)


SHAPES = (slow_start, evaluation, evaluation_on_rank_0, slow_save, uneven_input, one_second_steps, no_reports)


def main():
    shape = next(shape for shape in SHAPES if shape.__name__ == sys.argv[1])
    seconds = float(sys.argv[2])
    dist.init_process_group("gloo")
    end = torch.tensor([time.time() + seconds], dtype=torch.float64)
    dist.broadcast(end, 0)
    step, is_over = 0, torch.zeros(1)
    while not is_over:
        shape(step, seconds)
        is_over = torch.tensor([float(time.time() > end)])
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
        if shape is not no_reports:
            echelon.report(step)
        step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
