"""FSDP2: fully_shard of an MLP over CPUs.   fsdp2.py STEPS"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def main(steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        x = torch.randn(16, 32, generator=torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank()))
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print("rank %d step %d loss %.4f" % (dist.get_rank(), step, loss.item()), flush=True)
    dist.destroy_process_group()


main(int(sys.argv[1]))
