"""Python reads this file when it starts, if the directory is in PYTHONPATH. Published programs that ask for GPUs then run on CPUs without a
change of their text: devices become the CPU, nccl becomes gloo, and DDP gets no device. There seem to be two GPUs on each machine."""
import functools
import sys

import torch
import torch.distributed as dist
from torch import nn

CPU = torch.device("cpu")
DEVICES = 2


def to_cpu(value):
    """A device of any kind as the CPU; other values as they are."""
    if isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")):
        return CPU
    return value


def with_cpu(call):
    @functools.wraps(call)
    def changed(self, *args, **kwargs):
        if args and type(args[0]) is int:  # the number of a GPU
            args = (CPU, *args[1:])
        return call(self, *map(to_cpu, args), **{key: to_cpu(value) for key, value in kwargs.items()})
    return changed


def load_on_cpu(load=torch.load):
    return lambda *args, **kwargs: load(*args, **dict(kwargs, map_location="cpu"))


def init_with_gloo(init=dist.init_process_group):
    return lambda *args, **kwargs: init("gloo", *args[1:], **{k: v for k, v in kwargs.items() if k not in ("backend", "device_id")})


def make_without_device(make=nn.parallel.DistributedDataParallel.__init__):
    return lambda self, module, *_, **kwargs: make(self, module, **{k: v for k, v in kwargs.items() if k != "device_ids"})


def torch_asks():
    """Whether PyTorch's own code has called, which goes on to use the GPU."""
    return sys._getframe(2).f_globals["__name__"].startswith("torch")


torch.Tensor.to, nn.Module.to = with_cpu(torch.Tensor.to), with_cpu(nn.Module.to)
torch.Tensor.pin_memory = lambda self, *_: self
torch.load, dist.init_process_group = load_on_cpu(), init_with_gloo()
nn.parallel.DistributedDataParallel.__init__ = make_without_device()
torch.cuda.set_device = torch.accelerator.set_device_index = lambda *_: None
torch.cuda.device_count = torch.accelerator.device_count = lambda: DEVICES
torch.accelerator.is_available = lambda *_, **__: not torch_asks()
torch.accelerator.current_accelerator = lambda *_, **__: None if torch_asks() else CPU
torch.set_num_threads(1)
torch.manual_seed(0)
