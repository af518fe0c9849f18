"""A job for two nodes whose all-reduce takes seconds on a slow link and no time on a fast one, and the slow link."""
import subprocess
import sys

JOB = """
nodes: 2
device: cpu
train:
  model: {type: mlp, sizes: [64, 256, 256, 8]}
  data: {type: synthetic, samples: 8192, in: 64, out: 8}
  optimizer: {type: adamw, lr: 0.001}
  batch: 1024
  steps: 1000000
  sync: %s
  log_every: 2
  snapshot: {dir: %s/out, every: 1s, keep: 3}
  eval: {every: never}
  threads: 1
"""
SLOW = ["root", "tbf", "rate", "2mbit", "burst", "16k", "latency", "400ms"]


def shape(c, *words):
    """Changes what the nodes may send: "add", *SLOW, or "del", "root"."""
    for node in ("n1", "n2"):
        done = subprocess.run(["ip", "netns", "exec", c.network.space[node], "tc", "qdisc", *words[:1], "dev", "eth0", *words[1:]],
                              text=True, stderr=subprocess.PIPE)
        if done.returncode and words[0] == "add":
            print("skipped: tc: " + done.stderr)
            sys.exit(77)
        assert not done.returncode, done.stderr
