"""Train jobs on the emulated CUDA of tests/standins/cuda, and what tests read of their runs."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "num"))
from world import BIN, World, state_bits  # noqa: E402

PLUGIN = os.path.join(os.environ.get("DDP_BUILD", os.path.join(BIN, "..")), "lib", "ddp_emulated", "libddp_cuda.so")
JOB = """
name: t
device: DEVICE
train:
  MODEL
  global_batch: 8
  steps: STEPS
  seed: 5
  snapshot: {dir: OUT, every: EVERY, keep: 10}
  log_every: 1
  EXTRA
"""
MLP = """model: {type: mlp, sizes: [12, 24, 3], activation: gelu}
  data: {type: synthetic, samples: 500}
  optimizer: {type: sgd, lr: 1.0e-2, momentum: 0.9, clip: 0.5}"""
GPT = """model: {type: gpt, layers: 2, heads: 2, width: 32, context: 16, dropout: CHANCE}
  data: {type: text, path: input.txt}
  optimizer: {type: adamw, lr: 3.0e-3, weight_decay: 0.1, clip: 0.5}
  eval: {every: 5, batches: 2}"""

os.environ.update(DDP_CUDA_PLUGIN=PLUGIN, CUDA_VISIBLE_DEVICES="GPU-emulated")
os.environ.pop("DDP_EMULATED_SEED", None)


def job_text(model, device="cuda", steps=10, every=5, out="out", precision="fp32", dropout=0, extra=""):
    text = JOB.replace("MODEL", model)
    for name, value in (("DEVICE", device), ("STEPS", steps), ("EVERY", every), ("OUT", out), ("CHANCE", dropout),
                        ("EXTRA", f"precision: {precision}\n  {extra}")):
        text = text.replace(name, str(value))
    return text


def train(directory, text, world=1, nodes=1, **env):
    """Returns {step: loss}."""
    os.environ.update(env)
    try:
        with World(directory, text, world=world, nodes=nodes) as w:
            w.run()
            return {r["step"]: r["loss"] for r in w.ranks[0].reports if "loss" in r}
    finally:
        for name in env:
            os.environ.pop(name, None)


def largest_difference(one, other):
    assert one and sorted(one) == sorted(other), (sorted(one), sorted(other))
    return max(abs(one[s] - other[s]) / abs(other[s]) for s in one)


def snapshot_bits(directory, out):
    return state_bits(f"{directory}/{out}")


def counted(path):
    """Returns what the stand-in for NCCL has written: for each communicator that ended, its counts by name."""
    with open(path) as f:
        return [{k: int(v) for k, v in (word.split("=") for word in line.split())} for line in f]
