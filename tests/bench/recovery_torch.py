"""A rank of tests/bench/recovery in PyTorch: the MLP of that bench, with the same batch and optimizer.

    recovery_torch.py ddp STEPS-FILE SNAPSHOT      under torchrun: DDP over Gloo; continues from SNAPSHOT after a restart
    recovery_torch.py ft STEPS-FILE LIGHTHOUSE RANK    a replica group of one process under torchft

Each step appends a line "TIME RANK STEP PID" to STEPS-FILE.
"""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

SIZES = (20, 256, 256, 1)
SAMPLES, BATCH, RANKS = 4096, 256, 4
SNAPSHOT_EVERY = 50


class Steps:
    def __init__(self, path, rank):
        self.fd, self.rank = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), rank

    def made(self, step):
        os.write(self.fd, b"%.6f %d %d %d\n" % (time.time(), self.rank, step, os.getpid()))


def make_model():
    torch.manual_seed(0)
    layers = []
    for i, o in zip(SIZES, SIZES[1:]):
        layers += [nn.Linear(i, o), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def make_batch(data, step, rank):
    first = (step * BATCH + rank * (BATCH // RANKS)) % SAMPLES
    return [part[first:first + BATCH // RANKS] for part in data]


def step_backward(model, data, step, rank):
    x, y = make_batch(data, step, rank)
    nn.functional.mse_loss(model(x), y).backward()


def run_ddp(data, path, snapshot):
    dist.init_process_group("gloo")
    rank, step = dist.get_rank(), 0
    plain = make_model()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.001)
    if os.path.exists(snapshot):
        state = torch.load(snapshot)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model, steps = nn.parallel.DistributedDataParallel(plain), Steps(path, rank)
    while True:
        optimizer.zero_grad()
        step_backward(model, data, step, rank)
        optimizer.step()
        step += 1
        steps.made(step)
        if rank == 0 and step % SNAPSHOT_EVERY == 0:
            torch.save({"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, snapshot + ".new")
            os.replace(snapshot + ".new", snapshot)


def share_gradients(manager, model):
    """Replaces torchft's DistributedDataParallel, which with torch 2.15 ends the process when a peer is lost."""
    grads = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in grads])
    manager.allreduce(flat).wait()
    for grad, part in zip(grads, flat.split([g.numel() for g in grads])):
        grad.copy_(part.view_as(grad))


def run_ft(data, path, lighthouse, rank):
    from torchft import Manager, Optimizer, ProcessGroupGloo
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    plain = make_model()
    inner = torch.optim.AdamW(plain.parameters(), lr=0.001)

    def load(state):
        plain.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(pg=ProcessGroupGloo(timeout=timedelta(seconds=30)), min_replica_size=1, load_state_dict=load,
                      state_dict=lambda: {"model": plain.state_dict(), "optimizer": inner.state_dict()},
                      replica_id="rank%d" % rank, store_addr="127.0.0.1", store_port=store.port, rank=0, world_size=1,
                      lighthouse_addr=lighthouse, hostname="127.0.0.1", timeout=timedelta(seconds=30))
    optimizer, steps, last = Optimizer(manager, inner), Steps(path, rank), 0
    while True:
        optimizer.zero_grad()
        step_backward(plain, data, manager.current_step(), rank)
        share_gradients(manager, plain)
        optimizer.step()
        if manager.current_step() > last:  # otherwise the step failed, and torchft has discarded it
            last = manager.current_step()
            steps.made(last)


def main(kind, path, *rest):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    x = torch.randn(SAMPLES, SIZES[0])
    data = x, x.sum(1, keepdim=True)
    if kind == "ddp":
        run_ddp(data, path, *rest)
    else:
        run_ft(data, path, rest[0], int(rest[1]))


main(*sys.argv[1:])
