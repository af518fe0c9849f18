#!/usr/bin/python3
"""Runs `ddpctl run` with 1, 2 and 4 ranks on emulated GPUs, summed by the stand-in NCCL. The same global batch gives the
same loss, and no rank falls back to the CPU."""
import os
import re
import subprocess
import sys
import tempfile

JOB = """name: ranks
device: auto
train:
  model: {type: mlp, sizes: [20, 16, 1], activation: relu}
  data: {type: synthetic, samples: 256}
  optimizer: {type: sgd, lr: 0.05}
  global_batch: 32
  steps: 20
  seed: 1
"""


def train(path, ranks):
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="0",
               DDP_CUDA_PLUGIN=os.path.join(os.environ["DDP_BUILD"], "lib/ddp_emulated/libddp_cuda.so"))
    done = subprocess.run([os.path.join(os.environ["DDP_BIN"], "ddpctl"), "run", "--set", "procs_per_node=%d" % ranks, path],
                          env=env, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    found = re.search(r"event=finished step=20 loss=([0-9.]+)", said)
    if done.returncode or not found or "device_fallback" in said:
        sys.exit("%d ranks: exit %d\n%s" % (ranks, done.returncode, said[-3000:]))
    return float(found.group(1))


with tempfile.TemporaryDirectory(prefix="ddp-ranks-") as folder:
    job = os.path.join(folder, "job.yaml")
    with open(job, "w") as f:
        f.write(JOB)
    losses = [train(job, ranks) for ranks in (1, 2, 4)]
if max(losses) - min(losses) > 1e-5 * losses[0]:
    sys.exit("losses of 1, 2 and 4 ranks differ: %r" % losses)
