#!/usr/bin/python3
"""Compares worlds of 1, 2, 3, 5 and 8 ranks with one rank on the same global batch, repeated runs, and averaging with all-reduce."""
import json
import os
import signal
import struct
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, difference, model, raw, sweep  # noqa: E402

SAMPLES = 1000
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


def waiting_is_a_part_of_the_step(directory):
    """Neither the time of an evaluation nor the waiting in it counts as a step's. On one node a rank does not compute
    while it waits."""
    text = job(batch="batch: 1").replace("epochs: 3", "steps: 40") + "  log_every: 1\n  eval: {every: 1, batches: all}\n"
    w, _ = run(directory, text.replace("samples: 1000", "samples: 40000").replace('"1 epochs"', '"99 epochs"'), world=2)
    reports = [r for rank in w.ranks for r in rank.reports if "wait_ms" in r]
    assert len(reports) > 40 and all(r["wait_ms"] <= r["ms_per_step"] for r in reports), reports


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


def rounds_of_a_time_take_all_samples(directory):
    """Rounds of a given time: each rank makes as many steps as it can. The rounds of all ranks together take exactly the samples that
    the job asks for, and all ranks count the same steps."""
    kinds = {"average": "{type: average, every: 10ms}", "diloco": '{type: diloco, every: "10ms", wire: int4, warm: 10}'}
    for name, world, nodes in (("average", 2, 1), ("diloco", 3, 1), ("diloco", 2, 2)):
        text = job(f"{name}{world}{nodes}", batch="batch: 8", optimizer=PLAIN_SGD, sync=kinds[name])
        text = text.replace("epochs: 3", "steps: 1000").replace('"1 epochs"', '"99 epochs"')
        w, _ = run(directory, text, world=world, nodes=nodes)
        rounds = [[r for r in rank.reports if "round" in r] for rank in w.ranks]
        steps = [[r["step"] for r in those] for those in rounds]
        assert len(steps[0]) > 2 and steps[0][-1] == 1000 and all(those == steps[0] for those in steps), steps
        taken = sum(r["round_samples"] for those in rounds for r in those)
        warm = 10 if name == "diloco" else 0
        assert taken == (1000 - warm) * 8 * world, (taken, world)


def ranks_at_unlike_speeds(directory):
    """One rank makes a quarter of the steps of another, by a number that the test gives each. Each sample of an epoch is taken once, the
    model is the same on all ranks, and a run that was interrupted ends with the same number of samples, also with another number of
    ranks. A run that goes on with rounds of steps leaves out what was dealt and not taken."""
    env = {r: {"DDP_TEST_ROUND_STEPS": "16,8,4"} for r in range(3)}
    text = job("whole", batch="batch: 8", accumulate=2, optimizer="{type: adamw, lr: 3.0e-3}", sync="{type: diloco, every: 1h, wire: int4}")
    text = text.replace('"1 epochs"', "20")
    w, _ = run(directory, text, world=3, env=env)
    rounds = [[r for r in rank.reports if "round" in r] for rank in w.ranks]
    taken = [sum(r["round_samples"] for r in those) for those in rounds]
    assert sum(taken) == 3 * SAMPLES and taken[0] > 1.8 * taken[1] > 3.2 * taken[2], taken
    usual = [[r["round_steps"] for r in those][1:-2] for those in rounds]
    assert [set(those) for those in usual] == [{16}, {8}, {4}], usual
    assert all(r.err.count("silent corruption") == 0 for r in w.ranks)
    steps = [r["step"] for r in w.ranks[0].reports]
    assert steps[-1] == -(-3 * SAMPLES // 48), steps  # the last step has fewer samples
    for then, sync in ((3, "every: 1h"), (2, "every: 1h"), (3, "every: 8")):
        committed, out = {}, f"cut{then}{sync[7:]}"
        with World(directory, text.replace("whole", out), world=3, snapshots=committed, env=env) as w:
            w.kill_at_commit(1, 20)
            w.wait()
        again = text.replace("whole", out).replace("every: 1h", sync)
        with World(directory, again, world=then, snapshots=committed, generation=2, env=env) as w:
            w.run()
            assert w.ranks[0].reports[0]["step"] >= 20, w.ranks[0].reports[0]
            last = metadata(f"{directory}/{out}")
            assert last["ddp.epoch"] == "3" and last["ddp.position"] == "0", last
            if sync == "every: 1h":
                # All samples of three epochs were dealt, none of a fourth, and none is given back.
                assert last["ddp.samples"] == str(3 * SAMPLES) and last["ddp.dealt"].split()[1:] == ["3", "0"], last
            else:  # what was given back is left out
                assert 2.5 * SAMPLES < int(last["ddp.samples"]) <= 3 * SAMPLES and "ddp.dealt" not in last, last
    return f"samples of the ranks: {taken}"


def the_last_round_is_in_a_snapshot(directory):
    """The last round has half a step's samples, and there is a snapshot of the whole step before it."""
    text = job("out", batch="batch: 8", optimizer=PLAIN_SGD, sync="{type: average, every: 1h}")
    text = text.replace("epochs: 3", "epochs: 1").replace('"1 epochs"', "1")
    run(directory, text, world=2, env={r: {"DDP_TEST_ROUND_STEPS": "31,31"} for r in range(2)})
    last = metadata(f"{directory}/out")
    assert last["ddp.samples"] == str(SAMPLES) and last["ddp.step"] == "63", last


def weights_at_unlike_speeds_add_up_to_one(directory):
    """Ranks that do not learn keep their parameters, whatever the number of samples by which each counts."""
    env = {r: {"DDP_TEST_ROUND_STEPS": "9,4,1"} for r in range(3)}
    still = "{type: sgd, lr: 1.0e-30}"
    run(directory, job("a", batch="batch: 8", optimizer=still), "a", world=3)
    for kind in ("average, every: 1h", "diloco, every: 1h, outer_lr: 1.0, wire: int8"):
        run(directory, job(kind[:3], batch="batch: 8", optimizer=still, sync="{type: %s}" % kind), kind[:3], world=3, env=env)
        away = difference(model(f"{directory}/a"), model(f"{directory}/{kind[:3]}"))
        assert away < 1e-5, (kind, away)


def a_rank_that_is_slowed_makes_fewer_steps(directory):
    """Rank 1 is stopped for most of the time. Its clock goes on, so the other rank does not wait for it to make as many steps."""
    text = job("out", batch="batch: 8", optimizer=PLAIN_SGD, sync="{type: average, every: 200ms}").replace("12, 24, 16, 3", "12, 256, 256, 3")
    text = text.replace("epochs: 3", "steps: 1500").replace('"1 epochs"', '"99 epochs"')
    with World(directory, text, world=2) as w:
        over = threading.Event()

        def slow():
            while not over.is_set():
                w.kill(1, signal.SIGSTOP)
                over.wait(0.1)
                w.kill(1, signal.SIGCONT)
                over.wait(0.01)
        thread = threading.Thread(target=slow)
        thread.start()
        try:
            w.run()
        finally:
            over.set()
            thread.join()
        taken = [sum(r.get("round_samples", 0) for r in rank.reports) for rank in w.ranks]
    assert sum(taken) == 1500 * 16 and taken[1] < taken[0], taken
    return f"{taken[1] / taken[0]:.2f} of the samples"


def metadata(directory):
    data = raw(directory)
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]


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
                      averaging_every_step_equals_all_reduce, averaging_every_16_sends_a_sixteenth, waiting_is_a_part_of_the_step,
                      rounds_are_reported, rounds_of_a_time_take_all_samples, ranks_at_unlike_speeds,
                      the_last_round_is_in_a_snapshot, weights_at_unlike_speeds_add_up_to_one,
                      a_rank_that_is_slowed_makes_fewer_steps, tutorial_lines])
