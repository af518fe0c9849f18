"""The PyTorch side of tests/bench/gpt: GPT-2 written for speed, under DistributedDataParallel over Gloo. One process is one rank.

    gpt_torch.py LAYERS HEADS WIDTH CONTEXT VOCAB ROWS PRECISION eager|compile TOKENS

TOKENS: a file of uint16 tokens. The environment is torchrun's. Each line of the standard input is a number of steps. For each, prints
a line of JSON: the seconds of every step, the largest memory of the process, and PyTorch's settings.
"""
import json
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
    precision, mode, path = sys.argv[7:10]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    data = numpy.memmap(path, dtype="<u2", mode="r")
    model = GPT(layers, heads, width, context, vocab)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    fused = True
    try:
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    except (TypeError, RuntimeError):
        fused = False
        optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(ddp) if mode == "compile" else ddp
    generator = torch.Generator().manual_seed(rank)
    settings = "torch %s %s: %d thread a rank, pinned to a core; DistributedDataParallel over Gloo, gradients as views of buckets; %s AdamW; %s" % (
        torch.__version__, mode, torch.get_num_threads(), "fused" if fused else "plain",
        "autocast to bfloat16" if precision == "bf16" else "float32")
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
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
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": times, "memory": memory, "loss": loss.item(), "settings": settings}), flush=True)
    os._exit(0)  # some versions of Gloo sometimes crash while they tear down


main()
