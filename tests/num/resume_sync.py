#!/usr/bin/python3
"""Tests runs that continue a snapshot of averaging with another `sync`. The parameters in the snapshot differ between ranks although it
was taken right after an exchange."""
import glob
import json
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, newest, sweep, tensors, whole_file  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: mlp, sizes: [12, 64, 3], activation: tanh}
  data: {type: synthetic, samples: 1000}
  optimizer: {type: adamw, lr: 3.0e-3}
  global_batch: 60
  steps: STEPS
  seed: 5
  sync: SYNC
  eval: {every: 8}
  snapshot: {dir: out, every: 8, keep: 9}
  resume: RESUME
  log_every: 4
"""
OVERLAP = "{type: diloco, every: 8, overlap: 5}"
FRAGMENTS = "{type: diloco, every: 16, fragments: 2}"
OTHERS = ("{type: diloco, every: 8}", "{type: diloco, every: 8, wire: int8}", "{type: diloco, every: 8, outer_lr: 1, outer_momentum: 0}",
          "{type: diloco, every: 200ms}", "{type: average, every: 16}", "{type: allreduce}", "auto", OVERLAP, FRAGMENTS)


def job(steps, sync, resume="auto"):
    return JOB.replace("STEPS", str(steps)).replace("SYNC", sync).replace("RESUME", resume)


def metadata(snapshot):
    data = whole_file(f"{snapshot}/model.safetensors")
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]


def killed_after_an_exchange(directory, sync, committed):
    """Kills a rank while a snapshot is committed. Returns the snapshot's step."""
    with World(directory, job(10000, sync), world=3, snapshots=committed) as w:
        w.kill_at_commit(1, 8)
        w.wait()
    step = max(step for _, step in committed)
    said = metadata(f"{directory}/out/step-{step}-g1")
    assert said["ddp.own_params"] == "1", said
    assert ("ddp.turn" in said) == ("fragments" in sync), said
    return step


def ranks_that_differ_continue_with_another_sync(directory):
    """The evaluation has applied the exchange, so with `overlap` each rank has parameters of its own. No rank takes that for a fault.
    At the end of the run all have the same parameters, and have compared them."""
    for name, sync in (("overlap", OVERLAP), ("fragments", FRAGMENTS)):
        committed = {}
        step = killed_after_an_exchange(f"{directory}/{name}/first", sync, committed)
        for i, other in enumerate(OTHERS):
            where = f"{directory}/{name}/{i}"
            shutil.copytree(f"{directory}/{name}/first", where)
            with World(where, job(step + 40, other, "continue"), world=3, snapshots=dict(committed), generation=2) as w:
                w.run()
                reports = w.ranks[0].reports
            assert reports[0]["step"] == step, (sync, other, reports[0])
            assert reports[-1]["step"] == step + 40 and "digest_high" in reports[-1], (sync, other, reports[-1])
            assert "ddp.own_params" not in metadata(newest(f"{where}/out")), (sync, other)


def feedback_of(directory, step, generation):
    parts = sorted(glob.glob(f"{directory}/out/parts-step-{step}-g{generation}-j*/*.safetensors"))
    assert len(parts) == 3, parts
    return [any(any(floats) for name, (_, floats) in tensors(p).items() if name.endswith(".feedback")) for p in parts]


def other_fragments_drop_the_error_feedback(directory):
    """The owners of slices change with the fragments. The first evaluation writes a snapshot before the next exchange."""
    sync, evaluations, committed = "{type: diloco, every: 8, wire: int8}", "eval: {every: 8}", {}
    with World(f"{directory}/first", job(10000, sync).replace(evaluations, "eval: {every: 1000000}"), world=3, snapshots=committed) as w:
        w.kill_at_commit(1, 8)
        w.wait()
    began = max(step for _, step in committed)
    assert metadata(f"{directory}/first/out/step-{began}-g1")["ddp.fragments"] == "1"
    assert all(feedback_of(f"{directory}/first", began, 1))
    for fragments in (1, 2):
        where = f"{directory}/{fragments}"
        shutil.copytree(f"{directory}/first", where)
        text = job(10000, sync.replace("8,", f"2000, fragments: {fragments},"), "continue")
        text = text.replace(evaluations, "eval: {every: 4}").replace("every: 8,", "every: 1000000, keep_best: 1,")
        with World(where, text, world=3, snapshots=dict(committed), generation=2) as w:
            w.kill_at_commit(1, began + 4)
            w.wait()
            assert [c.step for c in w.rendezvous.commits] == [began + 4], w.rendezvous.commits
        step = began + 4
        assert feedback_of(where, step, 2) == [fragments == 1] * 3, fragments
        assert metadata(f"{where}/out/step-{step}-g2")["ddp.fragments"] == str(fragments)


sweep("resume_sync", [ranks_that_differ_continue_with_another_sync, other_fragments_drop_the_error_feedback])
