#!/usr/bin/python3
"""Tests `sync: {type: allreduce, wire: bf16}`: half the bytes, a run close to that of fp32, and the same bits each time, also in parts
(shard: optimizer) and after a rank was killed."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, difference, model, raw, state_bits, sweep  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {{type: mlp, sizes: [13, 61, 7], activation: tanh}}
  data: {{type: synthetic, samples: 500}}
  optimizer: {{type: sgd, lr: 0.05, momentum: 0.9{clip}}}
  global_batch: 60
  steps: {steps}
  seed: 5
  shard: {shard}
  sync: {{type: allreduce, wire: {wire}}}
  snapshot: {{dir: out, every: {every}, keep: 2}}
  eval: {{every: 1000}}
  log_every: 5
"""
COUNT = 800 + 64 + 432 + 16  # its floats: each tensor begins at a line of 16


def job(wire="bf16", shard="none", steps=20, every=1000, clip=""):
    return JOB.format(wire=wire, shard=shard, steps=steps, every=every, clip=clip)


def run(directory, text, world, nodes=1, **more):
    with World(directory, text, world=world, nodes=nodes, **more) as w:
        w.run()
        return w


def losses(w):
    return [r["loss"] for r in w.ranks[0].reports if "loss" in r]


def bytes_between(w, rank, first, last):
    at = {r["step"]: r["sync_bytes"] for r in w.ranks[rank].reports if "sync_bytes" in r}
    return at[last] - at[first]


def same_files(a, b):
    assert state_bits(a) == state_bits(b), f"{a} and {b} differ"


def the_run_is_close_to_fp32_and_repeats(directory):
    """On one or two nodes parts have the bits of the whole. On more, the order of a sum differs."""
    worst = far = 0.0
    for world, nodes in ((3, 1), (4, 2), (3, 3)):
        at = f"{directory}/{world}-{nodes}"
        exact = run(at + "/exact", job("fp32"), world, nodes)
        once = run(at + "/once", job(), world, nodes)
        run(at + "/again", job(), world, nodes)
        same_files(at + "/once/out", at + "/again/out")
        assert raw(at + "/once/out") != raw(at + "/exact/out"), "bf16 makes no difference"
        parts = run(at + "/parts", job(shard="optimizer"), world, nodes)
        if nodes <= 2:
            same_files(at + "/once/out", at + "/parts/out")
        for other in (once, parts):
            worst = max(worst, max(abs(a - b) / b for a, b in zip(losses(other), losses(exact), strict=True)))
        far = max(far, difference(model(at + "/once/out"), model(at + "/exact/out")))
    assert worst < 2e-3 and far < 2e-2, (worst, far)
    return f"losses differ by up to {worst:.1e}, parameters by {far:.1e}"


def half_the_bytes(directory):
    """The tail with loss and votes stays fp32, and so do the parameters that are gathered."""
    for world, nodes in ((2, 1), (3, 3)):
        moved = {}
        for wire in ("fp32", "bf16"):
            for shard in ("none", "optimizer"):
                w = run(f"{directory}/{world}-{wire}-{shard}", job(wire, shard), world, nodes)
                moved[wire, shard] = sum(bytes_between(w, r, 5, 15) for r in range(world)) / 10
        half, small = 4 * COUNT * (world - 1), world * 300
        for (wire, shard), found in moved.items():
            # On one node an all-reduce reads each array once and writes it once; only what is read counts.
            sums = half * (1 if nodes == 1 or shard == "optimizer" else 2) / (2 if wire == "bf16" else 1)
            want = sums + (half if shard == "optimizer" else 0)
            assert want <= found <= want + small, (world, wire, shard, found, want)


def killed_and_resumed(directory):
    """Kills a rank while a snapshot is committed. The next generation ends with the bits of a run that was not cut off."""
    text = job(shard="optimizer", steps=40, every=11, clip=", clip: 0.3")
    whole, cut, committed = f"{directory}/whole", f"{directory}/cut", {}
    run(whole, text, 4, 2)
    with World(cut, text, world=4, nodes=2, snapshots=committed) as w:
        w.kill_at_commit(1, 11)
        assert w.wait()[1] == -signal.SIGKILL
    w = run(cut, text, 4, 2, snapshots=committed, generation=2)
    assert w.ranks[0].reports[0]["step"] >= 11, w.ranks[0].reports[0]
    same_files(whole + "/out", cut + "/out")


sweep("wire", [the_run_is_close_to_fp32_and_repeats, half_the_bytes, killed_and_resumed])
