"""The training of train.py as a program that starts its own ranks, one for each GPU. For ddpctl it is one process.

    ddpctl run -- python3 spawn.py 50 10
    ddpctl submit --gpus-per-proc all -- python3 spawn.py 50 10
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import train


def rank_main(rank, world_size, args):
    os.environ["LOCAL_RANK"] = str(rank)
    os.environ.pop("DDP_CONTROL_FD", None)  # commits and the common stop are for the process that ddp has started
    device = train.choose_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=rank, world_size=world_size)
    train.run(device, args)


def main():
    parser = train.make_parser()
    parser.add_argument("--nprocs", type=int, default=max(1, torch.cuda.device_count()))
    args = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29400")
    mp.spawn(rank_main, args=(args.nprocs, args), nprocs=args.nprocs)


if __name__ == "__main__":
    main()
