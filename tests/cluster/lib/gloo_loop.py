"""What an unmodified distributed program looks like to the cluster: every rank all-reduces over Gloo, step after step.

    python3 gloo_loop.py [--steps N] [--pause SECONDS] [--quiet]

Without --steps it goes on until it is stopped. Rank, pid and the first steps are printed at once, then every hundredth
step; --quiet prints nothing after the first line. A rank that is stopped (SIGSTOP) leaves its peers waiting in all_reduce.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=0, help="0: until stopped")
parser.add_argument("--pause", type=float, default=0.01, help="seconds of work that each step stands for")
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
