#!/usr/bin/python3
"""Tests `balance: speed` with described speeds: the run is that of equal portions up to rounding, portions are told, and a run that was
killed goes on with the same bits, or in a world of another size with each sample once."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, difference, model, raw, sweep  # noqa: E402

STEPS = 200
JOB = """
name: t
device: cpu
train:
  model: {{type: mlp, sizes: [12, 64, 3], activation: tanh}}
  data: {{type: synthetic, samples: 1000}}
  optimizer: {{type: sgd, lr: 1.0e-2, momentum: 0.9}}
  global_batch: 60
  accumulate: {accumulate}
  steps: {steps}
  balance: {balance}
  snapshot: {{dir: out, every: 11, keep: 3, keep_best: 1}}
  eval: {{every: 40}}
  log_every: 1
"""
FILES = ("model.safetensors", "optimizer.safetensors")
SLOW = {"DDP_TEST_SAMPLE_NS": "1000,3000,1500"}  # 30, 10 and 20 of 60 samples
SLOW_TWO = {"DDP_TEST_SAMPLE_NS": "1000,2000"}


def job(balance="speed", accumulate=1):
    return JOB.format(balance=balance, accumulate=accumulate, steps=STEPS)


def run(directory, text, world=3, nodes=1, env=None, **more):
    with World(directory, text, world=world, nodes=nodes, env={r: env or {} for r in range(world)}, **more) as w:
        w.run()
        return w


def portions(w):
    return [w.last("balance_samples", r) for r in range(w.world)]


def losses(w):
    return [r["loss"] for r in w.ranks[0].reports if "loss" in r]


def the_run_is_that_of_equal_portions(directory):
    for accumulate in (1, 3):
        for nodes in (1, 3):
            at = f"{directory}/{accumulate}-{nodes}"
            equal = run(at + "/equal", job("equal", accumulate), nodes=nodes)
            unlike = run(at + "/unlike", job("speed", accumulate), nodes=nodes, env=SLOW)
            assert portions(unlike) == [30, 10, 20], portions(unlike)
            said = "balance: rank 0 30, rank 1 10, rank 2 20" if nodes == 1 else "balance: node0 30, node1 10, node2 20"
            said += " samples of 60: %s takes 3 times as long" % ("rank 1" if nodes == 1 else "node1")
            assert said in unlike.ranks[0].err, unlike.ranks[0].err
            assert not any("event=balanced" in r.err for r in unlike.ranks[1:])
            far = difference(model(at + "/equal/out"), model(at + "/unlike/out"))
            assert 0 < far < 1e-4, far  # another order of additions, and the same mean
            assert all(abs(a - b) < 1e-4 * abs(a) for a, b in zip(losses(equal), losses(unlike), strict=True))
            for name in ("epoch", "activation_bytes"):  # samples, and memory
                assert equal.last(name) == unlike.last(name), name


def interrupted(directory, world, nodes, env, world_then, env_then):
    """Kills a rank at a commit, then goes on in the next generation. Returns its world."""
    committed = {}
    with World(directory, job(), world=world, nodes=nodes, snapshots=committed, env={r: env for r in range(world)}) as w:
        w.kill_at_commit(1, 40)
        codes = w.wait()
        assert codes[1] == -signal.SIGKILL, codes
    w = run(directory, job(), world=world_then, env=env_then, snapshots=committed, generation=2)
    assert w.ranks[0].reports[0]["step"] >= 40, w.ranks[0].reports[0]
    return w


def a_resumed_run_has_the_same_bits(directory):
    run(f"{directory}/whole", job(), env=SLOW)
    assert b'"ddp.portions":"30 10 20"' in raw(f"{directory}/whole/out").replace(b" :", b":").replace(b": ", b":")
    w = interrupted(f"{directory}/cut", 3, 1, SLOW, 3, SLOW)
    assert [r["balance_samples"] for r in w.ranks[0].reports[:3]] == [30] * 3  # from the first step on
    for name in FILES:
        assert raw(f"{directory}/whole/out", name) == raw(f"{directory}/cut/out", name), name


def another_number_of_ranks_begins_with_equal_portions(directory):
    whole = run(f"{directory}/whole", job(), env=SLOW)
    w = interrupted(f"{directory}/cut", 3, 1, SLOW, 2, SLOW_TWO)
    assert w.ranks[0].reports[0]["balance_samples"] == 30, w.ranks[0].reports[0]
    assert portions(w) == [40, 20], portions(w)
    assert w.last("epoch") == whole.last("epoch"), w.last("epoch")
    far = difference(model(f"{directory}/whole/out"), model(f"{directory}/cut/out"))
    assert far < 1e-4, far


def equal_speeds_change_nothing(directory):
    run(f"{directory}/equal", job("equal"))
    run(f"{directory}/speed", job(), env={"DDP_TEST_SAMPLE_NS": "1000,1000,1000"})
    for name in FILES:
        assert raw(f"{directory}/equal/out", name) == raw(f"{directory}/speed/out", name), name


sweep("balance", [the_run_is_that_of_equal_portions, a_resumed_run_has_the_same_bits,
                  another_number_of_ranks_begins_with_equal_portions, equal_speeds_change_nothing])
