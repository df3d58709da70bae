"""Reports steps without torch, and fails in generation 0 as its options say."""

import argparse
import os
import signal
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--later-steps", type=int, help="in the generations after the first")
parser.add_argument("--seconds", type=float, default=0.02)
parser.add_argument("--who", type=int, default=1)
parser.add_argument("--at", type=int, default=3)
parser.add_argument("--always", action="store_true")
parser.add_argument("--do", choices=["kill", "raise", "exit", "stop", "sleep", "spin", "orphan"])
parser.add_argument("--report", action="store_true")
args = parser.parse_args()

rank = int(os.environ["RANK"])
generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def misbehave():
    if args.do == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif args.do == "raise":
        raise ValueError(f"rank {rank} is unhappy")
    elif args.do == "exit":
        sys.exit(3)
    elif args.do == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif args.do == "sleep":
        time.sleep(600)


for step in range(args.steps if generation == 0 else args.later_steps or args.steps):
    print(f"generation {generation} step {step}", flush=True)
    if args.report:
        import echelon

        echelon.report(step)
    if step == args.at and rank == args.who and (generation == 0 or args.always):
        misbehave()
    time.sleep(args.seconds)
    if step == args.at and args.do in ("sleep", "stop") and generation == 0:
        time.sleep(600)  # what a collective does when a peer is gone
print("done", flush=True)
