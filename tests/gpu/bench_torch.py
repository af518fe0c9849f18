#!/usr/bin/env python3
"""Measures GPT-2 in PyTorch on one GPU, for comparison with ddp. Written for speed: bf16 autocast with fp32 master
parameters, torch.compile, fused AdamW, the attention backend forced by name. Prints one JSON object. If PyTorch sees no
GPU, it runs on the CPU, so that the script itself can be tested with a tiny size.

    bench_torch.py LAYERS HEADS WIDTH CONTEXT VOCAB BATCH STEPS TOKENS [--attention cudnn|flash|efficient|math]
                   [--compile block|model|graphs|nothing]

TOKENS: a file of 16-bit tokens. VOCAB is rounded up to a multiple of 128, as is usual. A step is the same as ddp's: forward,
backward, clipping by the global norm, AdamW; the next batch is copied meanwhile. The time before the measured steps is warm_up_s.

--compile: which parts torch.compile compiles. block: each block, and the head with the loss; the time to compile does not grow
with the number of layers. model: the whole model, which may be a few percent faster. graphs: the whole model, with CUDA graphs
(mode reduce-overhead)."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
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

    def loss(self, x, labels):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.loss(x, labels)


def compile_parts(model, parts):
    """Returns what to call instead of the model."""
    if parts == "block":
        for block in model.blocks:
            block.compile()
        model.loss = torch.compile(model.loss)
    if parts in ("block", "nothing"):
        return model
    return torch.compile(model, mode="reduce-overhead" if parts == "graphs" else "default")


def optimizer_of(model, fused):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=fused)


class Batches:
    """Windows at random positions; the next one is copied while the device computes."""

    def __init__(self, path, context, batch, device):
        with open(path, "rb") as f:
            self.data = torch.frombuffer(bytearray(f.read()), dtype=torch.int16).to(torch.int64) & 0xffff
        self.context, self.batch, self.device = context, batch, device
        self.generator = torch.Generator().manual_seed(1)
        self.next = self.load()

    def load(self):
        at = torch.randint(len(self.data) - self.context - 1, (self.batch,), generator=self.generator).tolist()
        rows = torch.stack([self.data[i:i + self.context + 1] for i in at])
        if self.device == "cuda":
            rows = rows.pin_memory()
        return rows.to(self.device, non_blocking=True)

    def take(self):
        rows, self.next = self.next, self.load()
        return rows[:, :-1], rows[:, 1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("layers", "heads", "width", "context", "vocab", "batch", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("tokens")
    parser.add_argument("--attention", choices=BACKENDS, default="cudnn")
    parser.add_argument("--compile", choices=("block", "model", "graphs", "nothing"), default="model")
    o = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    vocab = (o.vocab + 127) // 128 * 128
    model = GPT(o.layers, o.heads, o.width, o.context, vocab).to(device)
    optimizer = optimizer_of(model, device == "cuda")
    run = compile_parts(model, o.compile)
    batches = Batches(o.tokens, o.context, o.batch, device)

    def step():
        x, y = batches.take()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    started = time.perf_counter()
    forced = sdpa_kernel(BACKENDS[o.attention]) if device == "cuda" else contextlib.nullcontext()
    with forced:
        for _ in range(max(2, o.steps // 4)):
            step()
        wait()
        warm = time.perf_counter() - started
        times = []
        for _ in range(4):  # the median of four measurements; within each, the host does not wait for the GPU
            wait()
            begin = time.perf_counter()
            for _ in range(max(1, o.steps // 4)):
                loss = step()
            wait()
            times.append((time.perf_counter() - begin) / max(1, o.steps // 4))
    seconds = statistics.median(times)
    print(json.dumps({"tokens_per_s": o.batch * o.context / seconds, "ms_per_step": seconds * 1e3, "warm_up_s": warm,
                      "attention": o.attention, "compiled": o.compile, "torch": torch.__version__, "device": device,
                      "memory_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0,
                      "loss": float(loss.detach())}))


main()
