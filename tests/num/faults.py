#!/usr/bin/python3
"""Kills a worker at every point of writing a snapshot and between steps, and makes writes fail. Needs a build with fault
points. After a kill, the next generation must end with the bits of an undisturbed run."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import BIN, World, raw, sweep  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: mlp, sizes: [12, 32, 3], activation: relu}
  data: {type: synthetic, samples: 300}
  optimizer: {type: adamw, lr: 3.0e-3}
  global_batch: 40
  steps: 40
  sync: SYNC
  snapshot: {dir: out, every: 10, keep: 2}
"""
FILES = ("model.safetensors", "optimizer.safetensors")
POINTS = ("snapshot.copy", "snapshot.file", "snapshot.rename", "snapshot.committed", "snapshot.prune", "trainer.step")


def left_over(directory):
    """Returns the names of uncommitted snapshots, and of parts that belong to no committed snapshot."""
    for name in os.listdir(directory):
        step = name.removeprefix("parts-").split("-j")[0]
        if not os.path.exists(f"{directory}/{step}/COMMITTED.json"):
            yield name


def killed_anywhere(directory, sync, victim=0, points=POINTS, files=FILES):
    text = JOB.replace("SYNC", sync)
    with World(f"{directory}/whole", text, world=2) as w:
        w.run()
    count = 0
    for point in points:
        for hit in (1, 2, 3):
            at, committed = f"{directory}/{point}-{hit}", {}
            with World(at, text, world=2, snapshots=committed, faults={victim: f"{point}:{hit}=kill"}) as w:
                codes = w.wait()
            if codes[victim] == -signal.SIGKILL:  # otherwise the run ended before this hit
                count += 1
            else:
                assert codes == [0, 0], (point, hit, codes)
            with World(at, text, world=2, snapshots=committed, generation=2) as w:
                w.run()
            for name in files:
                assert raw(f"{at}/out", name) == raw(f"{directory}/whole/out", name), (point, hit, name)
            left = list(left_over(f"{at}/out"))
            assert not left, (point, hit, left)
    assert count >= (8 if victim == 0 else 4), count
    return f"{count} kills"


def all_reduce(directory):
    return killed_anywhere(directory, "{type: allreduce}")


def averaging(directory):
    return killed_anywhere(directory, "{type: average, every: 7}", points=("snapshot.part", *POINTS), files=["model.safetensors"])


def averaging_of_a_rank_that_only_writes_its_part(directory):
    """Rank 0 writes the shared files and must not commit them without the part of rank 1."""
    return killed_anywhere(directory, "{type: average, every: 7}", 1, ["snapshot.file", "snapshot.part"], ["model.safetensors"])


def a_failed_write_costs_one_snapshot(directory):
    with World(directory, JOB.replace("SYNC", "{type: allreduce}"), faults={0: "snapshot.file:1"}) as w:
        w.run()
        assert "event=snapshot_failed" in w.ranks[0].err, w.ranks[0].err
        assert w.rendezvous.commits[-1].step == 40


def a_rank_that_fails_does_not_wait_for_its_exchange(directory):
    """Rank 0 fails in step 13, while its exchange after step 10 waits for rank 1, which holds in step 10."""
    gate = f"{directory}/gate"
    open(gate, "w").close()
    text = JOB.replace("SYNC", "{type: diloco, every: 10, overlap: 5}") + "  log_every: 100\n"  # a report would join the exchange
    with World(f"{directory}/run", text, world=2, nodes=2, faults={0: "step.begin:13"},
               env={1: {"DDP_TEST_HOLD_STEP": f"10:{gate}"}}) as w:
        assert w.ranks[0].process.wait(timeout=30) == 1, w.ranks[0].err
        w.until(lambda: "step.begin fails after step 12" in w.ranks[0].err, "the error")
        assert "event=held_for_test" in w.ranks[1].err and w.ranks[1].process.poll() is None, w.ranks[1].err


def a_flipped_bit_is_found(directory):
    """With three ranks the message names the wrong rank. With two ranks nobody can know which one is wrong."""
    text = JOB.replace("SYNC", "{type: allreduce}")
    with World(f"{directory}/three", text, world=3, faults={1: "trainer.flip:14"}) as w:
        codes = w.wait()
        assert codes == [75, 78, 75], codes
        said = "rank 1 (node0): parameters differ from the other ranks' at step 20, they were equal at step 10 " \
               "(silent corruption)"
        assert all(said in r.err for r in w.ranks), [r.err for r in w.ranks]
        # No snapshot contains the flipped bit. The snapshot of step 10 may be too late to be committed.
        assert {c.step for c in w.rendezvous.commits} <= {10}, w.rendezvous.commits
    with World(f"{directory}/two", text, world=2, nodes=2, faults={1: "trainer.flip:14"}) as w:
        codes = w.wait()
        assert codes == [78, 78], codes
        said = "rank 0 (node0), rank 1 (node1): parameters differ from each other at step 20, they were equal at step 10"
        assert all(said in r.err for r in w.ranks), [r.err for r in w.ranks]


with open(f"{BIN}/ddp-trainer", "rb") as program:
    has_faults = b"DDP_FAULT" in program.read()
if not has_faults:
    print("this build has no fault points")
    sys.exit(77)
sweep("faults", [all_reduce, averaging, averaging_of_a_rank_that_only_writes_its_part, a_flipped_bit_is_found, a_failed_write_costs_one_snapshot,
                 a_rank_that_fails_does_not_wait_for_its_exchange])
