#!/usr/bin/python3
"""Compares worlds of 1, 2, 3, 5 and 8 ranks with one rank on the same global batch, repeated runs, and averaging with all-reduce."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, difference, model, raw, sweep  # noqa: E402

MLP = """
name: t
device: cpu
train:
  tutorial_lines: true
  model: {{type: mlp, sizes: [12, 24, 16, 3], activation: gelu}}
  data: {{type: synthetic, samples: 1000}}
  optimizer: {optimizer}
  schedule: {{type: cosine, warmup: 5}}
  {batch}
  accumulate: {accumulate}
  epochs: 3
  seed: 5
  sync: {sync}
  snapshot: {{dir: {out}, every: "1 epochs"}}
"""
ADAMW = "{type: adamw, lr: 3.0e-3, weight_decay: 0.01, clip: 1.0}"
SGD = "{type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}"
MUON = "{type: muon, lr: 0.02, weight_decay: 0.01, clip: 1.0, adamw: {lr: 3.0e-3}}"
PLAIN_SGD = "{type: sgd, lr: 0.05}"
ALLREDUCE = "{type: allreduce}"


def job(out="out", batch="global_batch: 120", optimizer=ADAMW, sync=ALLREDUCE, accumulate=1):
    return MLP.format(out=out, batch=batch, optimizer=optimizer, sync=sync, accumulate=accumulate)


def run(directory, text, out="out", **kw):
    with World(directory, text, **kw) as w:
        w.run()
        return w, os.path.join(directory, out)


def every_world_equals_one(directory):
    """Each world size gives the results of one rank, also in the last, smaller batch of an epoch (1000 = 8 x 120 + 40)."""
    worst = 0.0
    for optimizer in (ADAMW, SGD, MUON):
        one, at = run(directory, job("one" + optimizer[7:10], optimizer=optimizer), "one" + optimizer[7:10])
        for world, nodes in ((2, 1), (3, 1), (5, 1), (8, 2), (2, 2)):
            out = f"w{world}n{nodes}{optimizer[7:10]}"
            w, there = run(directory, job(out, optimizer=optimizer), out, world=world, nodes=nodes)
            away = difference(model(at), model(there))
            worst = max(worst, away)
            assert away < 1e-5, f"world {world} on {nodes} nodes is {away} away from one rank"
            assert abs(w.last("val_loss") - one.last("val_loss")) < 1e-5 * abs(one.last("val_loss"))
    return f"largest relative difference {worst:.1e}"


def micro_batches_equal_one_batch(directory):
    run(directory, job("a"), "a")
    run(directory, job("b", accumulate=4), "b", world=2)
    away = difference(model(f"{directory}/a"), model(f"{directory}/b"))
    assert away < 1e-5, away
    return f"relative difference {away:.1e}"


def same_layout_twice_is_the_same_bits(directory):
    for out in ("a", "b"):
        run(directory, job(out), out, world=4, nodes=2)
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert raw(f"{directory}/a", name) == raw(f"{directory}/b", name), name


def averaging_every_step_equals_all_reduce(directory):
    run(directory, job("a", optimizer=PLAIN_SGD), "a", world=3)
    run(directory, job("b", optimizer=PLAIN_SGD, sync="{type: average, every: 1}"), "b", world=3)
    away = difference(model(f"{directory}/a"), model(f"{directory}/b"))
    assert away < 1e-5, away
    return f"relative difference {away:.1e}"


def averaging_every_16_sends_a_sixteenth(directory):
    a, _ = run(directory, job("a", batch="batch: 8", optimizer=PLAIN_SGD).replace("epochs: 3", "steps: 160"), world=2)
    b, _ = run(directory, job("b", batch="batch: 8", optimizer=PLAIN_SGD, sync="{type: average, every: 16}")
               .replace("epochs: 3", "steps: 160").replace('"1 epochs"', '"99 epochs"'), world=2)
    share = b.last("sync_bytes") / a.last("sync_bytes")
    assert 0.5 / 16 < share < 1.5 / 16, share
    return f"1/{1 / share:.1f} of the bytes"


def rounds_are_reported(directory):
    """Each rank reports each round at the step where it ends, and the last, shorter round at the end. Norm and agreement are the
    same on all ranks."""
    kinds = {"average": "{type: average, every: 16}", "diloco": "{type: diloco, every: 16, wire: int4}"}
    agreed = []
    for name, world, nodes in (("average", 2, 1), ("average", 2, 2), ("diloco", 1, 1), ("diloco", 3, 1), ("diloco", 2, 2)):
        out = f"{name}{world}{nodes}"
        text = job(out, batch="batch: 8", optimizer=PLAIN_SGD, sync=kinds[name])
        text = text.replace("epochs: 3", "steps: 50").replace('"1 epochs"', '"99 epochs"')
        w, _ = run(directory, text, world=world, nodes=nodes)
        rounds = [[r for r in rank.reports if "round" in r] for rank in w.ranks]
        for rank, those in enumerate(rounds):
            assert [(r["step"], r["round"]) for r in those] == [(16, 1), (32, 2), (48, 3), (50, 4)], those
            assert all(r["round_norm"] > 0 and r["round_wait_ms"] >= 0 for r in those), those
            assert all(("round_agreement" in r) == (world > 1) for r in those), those
            assert all((r["round_bytes"] > 0) == (world > 1) for r in those), those
            assert sum(r["round_bytes"] for r in those) <= w.last("sync_bytes", rank)
            for r, first in zip(those, rounds[0]):
                assert all(r.get(key) == first.get(key) for key in ("round_norm", "round_agreement")), (r, first)
            agreed += [r["round_agreement"] for r in those if world > 1]
            assert w.ranks[rank].err.count("event=first_round") == (rank == 0), w.ranks[rank].err
    assert all(0 < a <= 1 for a in agreed), agreed
    return f"agreement {min(agreed):.2f} to {max(agreed):.2f}"


def rounds_of_a_time_end_at_the_same_steps(directory):
    """Rounds of a given time end at the same steps on all ranks, although each rank has its own clock. The first round has 4
    steps, and all rounds together have all steps."""
    kinds = {"average": "{type: average, every: 10ms}", "diloco": '{type: diloco, every: "10ms", wire: int4}'}
    for name, world, nodes in (("average", 2, 1), ("diloco", 3, 1), ("diloco", 2, 2)):
        text = job(f"{name}{world}{nodes}", batch="batch: 8", optimizer=PLAIN_SGD, sync=kinds[name])
        text = text.replace("epochs: 3", "steps: 1000").replace('"1 epochs"', '"99 epochs"')
        w, _ = run(directory, text, world=world, nodes=nodes)
        rounds = [[(r["step"], r["round_steps"]) for r in rank.reports if "round" in r] for rank in w.ranks]
        assert rounds[0][0] == (4, 4) and len(rounds[0]) > 2, rounds[0]
        assert sum(steps for _, steps in rounds[0]) == 1000, rounds[0]
        assert all(those == rounds[0] for those in rounds), rounds


def tutorial_lines(directory):
    """DistributedSampler's step counts: 2,048 samples in batches of 32."""
    text = """
name: tutorial
train:
  tutorial_lines: true
  model: {type: linear, in: 20, out: 1}
  data: {type: synthetic, samples: 2048}
  optimizer: {type: sgd, lr: 1.0e-3}
  batch: 32
  epochs: 2
  snapshot: {dir: out, every: "1 epochs"}
"""
    for world, nodes, steps in ((1, 1, 64), (2, 1, 32), (4, 2, 16), (16, 2, 4)):
        with World(f"{directory}/{world}", text, world=world, nodes=nodes) as w:
            w.run()
        for r in w.ranks:
            for epoch in (0, 1):
                line = f"[GPU{r.rank}] Epoch {epoch} | Batchsize: 32 | Steps: {steps}\n"
                assert line in r.out, (world, r.rank, r.out)
        assert "Training snapshot saved at out/step-" in w.ranks[0].out, w.ranks[0].out


sweep("world_sizes", [every_world_equals_one, micro_batches_equal_one_batch, same_layout_twice_is_the_same_bits,
                      averaging_every_step_equals_all_reduce, averaging_every_16_sends_a_sixteenth, rounds_are_reported, rounds_of_a_time_end_at_the_same_steps, tutorial_lines])
