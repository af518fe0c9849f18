"""Jobs with `shard: optimizer`, how tests run them, and what they read of their runs."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, newest, raw, tensors  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {model}
  data: {{type: synthetic, samples: 500}}
  optimizer: {optimizer}
  global_batch: 60
  steps: {steps}
  seed: 5
  shard: {shard}
  snapshot: {{dir: out, every: {every}, keep: 2, keep_best: 1}}
  eval: {{every: 1000}}
  log_every: 5
"""
ADAMW = "{type: adamw, lr: 3.0e-3}"
CLIPPED = "{type: adamw, lr: 3.0e-3, clip: 0.3}"
MUON = "{type: muon, lr: 0.02, adamw: {lr: 3.0e-3}}"
MUON_CLIPPED = "{type: muon, lr: 0.02, clip: 0.3, adamw: {lr: 3.0e-3}}"
SGD = "{type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}"
ODD = "{type: mlp, sizes: [13, 61, 7], activation: tanh}"
# Matrices of odd sizes; muon updates all but the last. Six of them, so with eight ranks some have none.
DEEP = "{type: mlp, sizes: [13, 37, 61, 29, 23, 31, 17, 7], activation: tanh}"
COUNT = 800 + 64 + 432 + 16  # its floats: each tensor begins at a line of 16
TINY = "{type: linear, in: 20, out: 1}"  # fewer parameters than one part may have
FILES = ("model.safetensors", "optimizer.safetensors")


def job(shard, optimizer=ADAMW, steps=20, every=1000, model_text=ODD, more=""):
    return JOB.format(shard=shard, optimizer=optimizer, steps=steps, every=every, model=model_text) + more


def gpt(shard, directory, optimizer=ADAMW, steps=20, tied="true", log=5, every=9):
    """A small language model in bf16. It is evaluated after steps 7 and 14."""
    model_text = f"{{type: gpt, layers: 2, heads: 3, width: 27, context: 7, tied: {tied}}}"
    text = job(shard, optimizer, steps, every, model_text, "  precision: bf16\n").replace("eval: {every: 1000}", "eval: {every: 7, batches: 3}")
    text = text.replace("{type: synthetic, samples: 500}", f"{{type: text, path: {directory}/input.txt}}")
    return text.replace("global_batch: 60", "global_batch: 12").replace("log_every: 5", f"log_every: {log}")


def run(directory, text, world, nodes=1, **more):
    with World(directory, text, world=world, nodes=nodes, **more) as w:
        w.run()
        return w


def losses(w):
    return [(r["step"], r["loss"], r["grad_norm"]) for r in w.ranks[0].reports if "loss" in r]


def close(a, b):
    return all(x[0] == y[0] and abs(x[1] - y[1]) < 1e-6 and abs(x[2] - y[2]) < 1e-6 * x[2] for x, y in zip(a, b, strict=True))


def same_files(a, b):
    for name in FILES:
        assert raw(a, name) == raw(b, name), f"{name} differs"


def moments(directory):
    return tensors(os.path.join(newest(directory), "optimizer.safetensors"))


def sizes(w, rank, name):
    return int(re.search(rf"event=sizes .*\b{name}=(\d+)", w.ranks[rank].err).group(1))
