"""A loop with Hugging Face accelerate on CPUs.   accelerate_mlp.py STEPS"""
import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(steps):
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    x = torch.randn(2048, 20)
    model, data = nn.Linear(20, 1), DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=32)
    model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), data)
    step = 0
    while step < steps:
        for inputs, wanted in data:
            loss = nn.functional.mse_loss(model(inputs), wanted)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                mean = accelerator.gather(loss.detach().reshape(1)).mean().item()
                accelerator.print("step %d loss %.4f" % (step, mean), flush=True)
            step += 1
            if step == steps:
                break
    accelerator.end_training()


main(int(sys.argv[1]))
