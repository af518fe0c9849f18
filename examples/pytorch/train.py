"""Data-parallel training with snapshots. torchrun or ddpctl starts one process for each rank and sets the environment.

    ddpctl run --nproc-per-node 2 train.py 50 10
    ddpctl submit --nodes 2 --procs-per-node 2 -- python3 train.py 50 10

The program does not depend on its launcher: under other launchers than ddp, it does without the module ddp. Rank 0 writes the
snapshot, commits it, and reads it for all ranks, so the nodes need no shared directory and agree on where to continue: a restart
places rank 0 on the same node. Only if that node is lost does the job need a shared directory. When the job is to stop, all ranks
do so after the same epoch.
"""
import argparse
import gc
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    import ddp
except ImportError:  # another launcher, and ddp's wheel is not installed
    ddp = None

INPUTS = 20


def make_dataset(samples):
    """A line to find, under a little noise; every rank makes the same one."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.rand(samples, INPUTS, generator=generator)
    weights = torch.linspace(-1, 1, INPUTS).unsqueeze(1)
    targets = inputs @ weights + 0.3 + 0.01 * torch.randn(samples, 1, generator=generator)
    return TensorDataset(inputs, targets)


class Trainer:
    def __init__(self, model, loader, optimizer, device, save_every, snapshot_path):
        self.rank = dist.get_rank()
        self.device, self.loader, self.optimizer = device, loader, optimizer
        self.save_every, self.snapshot_path = save_every, snapshot_path
        self.model = model.to(device)
        self.epochs_run = 0
        self.resume()
        self.model = DistributedDataParallel(self.model, device_ids=[device.index] if device.type == "cuda" else None)

    def resume(self):
        found = [None]
        if self.rank == 0:
            path = ddp.resume_path(self.snapshot_path) if ddp else self.snapshot_path
            if path and os.path.exists(path):
                found = [torch.load(path, map_location="cpu")]
        dist.broadcast_object_list(found, src=0)
        if found[0] is None:
            return
        self.model.load_state_dict(found[0]["model"])
        self.optimizer.load_state_dict(found[0]["optimizer"])
        self.epochs_run = found[0]["epochs_run"]
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}", flush=True)

    def save(self, epoch):
        part = self.snapshot_path + ".part"
        torch.save({"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "epochs_run": epoch + 1}, part)
        os.replace(part, self.snapshot_path)  # whole or not at all, whenever the process dies
        if ddp:
            ddp.commit(self.snapshot_path, step=(epoch + 1) * len(self.loader))
        print(f"Epoch {epoch} | Training snapshot saved at {self.snapshot_path}", flush=True)

    def train_batch(self, inputs, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train_epoch(self, epoch):
        steps = len(self.loader)
        print(f"[GPU{self.rank}] Epoch {epoch} | Batchsize: {self.loader.batch_size} | Steps: {steps}", flush=True)
        self.loader.sampler.set_epoch(epoch)
        total = torch.zeros((), device=self.device)
        for inputs, targets in self.loader:
            total += self.train_batch(inputs.to(self.device), targets.to(self.device))
        if ddp:
            ddp.report(step=(epoch + 1) * steps, epoch=epoch + 1, loss=total.item() / steps)

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self.train_epoch(epoch)
            stop = ddp and ddp.should_stop(step=(epoch + 1) * len(self.loader))
            if self.rank == 0 and (stop or epoch % self.save_every == 0):
                self.save(epoch)
            if stop:
                break


def choose_device():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def make_parser():
    parser = argparse.ArgumentParser(description="Data-parallel training of a line, with snapshots")
    parser.add_argument("total_epochs", type=int)
    parser.add_argument("save_every", type=int, help="epochs from snapshot to snapshot")
    parser.add_argument("--batch_size", type=int, default=32, help="samples per rank and step")
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--snapshot_path", default="snapshot.pt")
    return parser


def make_trainer(device, args):
    dataset = make_dataset(args.samples)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=DistributedSampler(dataset))
    model = torch.nn.Linear(INPUTS, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return Trainer(model, loader, optimizer, device, args.save_every, args.snapshot_path)


def run(device, args):
    trainer = make_trainer(device, args)
    trainer.train(args.total_epochs)
    del trainer
    gc.collect()  # what still holds the process group when it is destroyed may abort at exit
    dist.destroy_process_group()


def main():
    args = make_parser().parse_args()
    device = choose_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    run(device, args)


if __name__ == "__main__":
    main()
