"""One of the ranks fails after some steps, and the others wait for it in a collective.   fails.py"""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(torch.ones(1))
    if step % 10 == 0 and dist.get_rank() == 0:
        print("step", step, flush=True)
if dist.get_rank() == 1:
    raise ValueError("a bad sample")
dist.all_reduce(torch.ones(1))
