"""The PyTorch side of tests/bench/gpt: GPT-2 written for speed, under DistributedDataParallel over Gloo. One process is one rank. Prints
the seconds of each step, and the largest memory of the process.

    gpt_torch.py LAYERS HEADS WIDTH CONTEXT VOCAB ROWS PRECISION eager|compile STEPS TOKENS

TOKENS: a file of uint16 tokens. The environment is torchrun's.
"""
import os
import resource
import sys
import time

import numpy
import torch
import torch.distributed
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, q, k, v):
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        t = q.shape[2]
        score = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        return torch.softmax(score.masked_fill(~mask, float("-inf")), dim=3) @ v

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.attn(self.ln_1(x)).split(c, dim=2))
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def main():
    layers, heads, width, context, vocab, rows = map(int, sys.argv[1:7])
    precision, mode, steps, path = sys.argv[7], sys.argv[8], int(sys.argv[9]), sys.argv[10]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    data = numpy.memmap(path, dtype="<u2", mode="r")
    model = GPT(layers, heads, width, context, vocab)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    try:
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    except (TypeError, RuntimeError):
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    ddp = nn.parallel.DistributedDataParallel(model)
    run = torch.compile(ddp) if mode == "compile" else ddp
    generator = torch.Generator().manual_seed(rank)
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        at = torch.randint(len(data) - context - 1, (rows,), generator=generator).tolist()
        x = torch.from_numpy(numpy.stack([data[i:i + context].astype(numpy.int64) for i in at]))
        y = torch.from_numpy(numpy.stack([data[i + 1:i + 1 + context].astype(numpy.int64) for i in at]))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = run(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    if rank == 0:
        late = sorted(times[len(times) // 3:])
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print("RESULT", late[len(late) // 2], memory, float(loss), world, flush=True)
    torch.distributed.barrier()
    os._exit(0)  # some versions of Gloo sometimes crash while they tear down


main()
