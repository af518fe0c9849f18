#!/usr/bin/python3
"""Tests that the state of a snapshot is copied beside the next step: the forward and the backward pass run, and the update waits for
the copy. The bits are those of a snapshot for which training waited. A rank that is killed in the copy leaves the snapshot before."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, data_alone, sweep, whole_file  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: mlp, sizes: [12, 32, 3], activation: gelu}
  data: {type: synthetic, samples: 500}
  optimizer: {type: adamw, lr: 3.0e-3, clip: 0.5}
  global_batch: 40
  steps: 12
  seed: 5
  snapshot: {dir: out, every: 5, keep: 10}
  log_every: 1
"""
FILES = ("model.safetensors", "optimizer.safetensors")


def snapshot_of(directory, step):
    """Returns the data of the files of the snapshot of this step."""
    name, = [n for n in os.listdir(f"{directory}/out") if n.startswith(f"step-{step}-")]
    bits = []
    for file in FILES:
        data = whole_file(f"{directory}/out/{name}/{file}")
        bits.append(data[8 + int.from_bytes(data[:8], "little"):])
    return bits


def held(directory, text, step, env=None, **more):
    """Starts a run whose copy after `step` is held while the file `gate` exists."""
    os.makedirs(directory, exist_ok=True)
    gate = f"{directory}/gate"
    with open(gate, "w"):
        pass
    return World(directory, text, env={0: {"DDP_TEST_HOLD_COPY": f"{step}:{gate}", **(env or {})}}, **more), gate


def until(text, steps):
    return text.replace("steps: 12", f"steps: {steps}")


def the_next_step_runs_beside_the_copy(directory, text=JOB, world=2, env=None):
    """While the copy after step 5 is held, the gradients of step 6 are computed. Its update waits."""
    with World(f"{directory}/waits", until(text, 5), world=world) as w:  # for its last snapshot
        w.run()
    w, gate = held(f"{directory}/beside", text, 5, env, world=world)
    with w:
        for event in ("snapshot_copy_awaited step=5", "held_for_test"):
            w.until(lambda event=event: f"event={event}" in w.ranks[0].err, f"the update and the copy: {event}")
        assert not w.rendezvous.commits, w.rendezvous.commits
        assert all(r["step"] <= 5 for r in w.ranks[0].reports), w.ranks[0].reports[-1]
        os.unlink(gate)
        w.run()
    assert w.rendezvous.commits[0].step == 5, w.rendezvous.commits
    assert snapshot_of(f"{directory}/beside", 5) == snapshot_of(f"{directory}/waits", 5)


def killed_in_the_copy(directory, text=JOB, world=2, env=None):
    """The snapshot before it is the newest one. The run that continues from there has the bits of an undisturbed run."""
    with World(f"{directory}/whole", text, world=world) as w:
        w.run()
    cut, committed = f"{directory}/cut", {}
    with World(cut, until(text, 5), world=world, snapshots=committed) as w:
        w.run()
    w, _ = held(cut, text, 10, env, world=world, snapshots=committed, generation=2)
    with w:
        w.until(lambda: "event=held_for_test" in w.ranks[0].err, "a copy that is held")
        w.kill(0)
        assert w.wait()[0] == -signal.SIGKILL
    assert [step for _, step in committed] == [5], committed
    with World(cut, text, world=world, snapshots=committed, generation=3) as w:
        w.run()
        assert w.ranks[0].reports[0]["step"] == 5, w.ranks[0].reports[0]
    for name in FILES:
        assert data_alone(f"{cut}/out", name) == data_alone(f"{directory}/whole/out", name), name


if __name__ == "__main__":
    sweep("snapshot copy", (the_next_step_runs_beside_the_copy, killed_in_the_copy))
