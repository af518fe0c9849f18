"""torchft: a replica group of one process, which takes its store from the launcher.   torchft_mlp.py STEPS"""
import os
import sys
from datetime import timedelta

import torch
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo


def main(steps):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(20, 1)
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=1, load_state_dict=model.load_state_dict,
                      state_dict=model.state_dict, replica_id="group-%s" % os.environ["RANK"], hostname="127.0.0.1",
                      timeout=timedelta(seconds=30))
    optimizer = Optimizer(manager, inner)
    while manager.current_step() < steps:
        step = manager.current_step()
        x = torch.randn(32, 20, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        optimizer.step()
        if step % 10 == 0:
            print("step %d loss %.4f" % (step, loss.item()), flush=True)
    manager.shutdown(wait=False)


main(int(sys.argv[1]))
