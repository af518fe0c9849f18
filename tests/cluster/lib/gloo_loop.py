"""An unmodified distributed program: every rank all-reduces over Gloo, step after step.

    python3 gloo_loop.py [--steps N] [--pause SECONDS] [--quiet]

Without --steps it runs until it is stopped. It prints rank, pid and the first steps at once, then every hundredth step; with --quiet
it prints nothing after the first line. If a rank is stopped (SIGSTOP), its peers wait in all_reduce.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=0, help="0: until stopped")
parser.add_argument("--pause", type=float, default=0.01, help="seconds of simulated work in each step")
parser.add_argument("--quiet", action="store_true")
args = parser.parse_args()

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
print("rank %d of %d is process %d" % (rank, world, os.getpid()), flush=True)
step = 0
while not args.steps or step < args.steps:
    step += 1
    value = torch.tensor([float(rank + step)])
    dist.all_reduce(value)
    assert value.item() == world * step + world * (world - 1) / 2, (step, value)
    if not args.quiet and (step <= 3 or step % 100 == 0):
        print("rank %d step %d" % (rank, step), flush=True)
    time.sleep(args.pause)
dist.destroy_process_group()
