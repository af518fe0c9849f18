#!/usr/bin/python3
"""Tests `shard: optimizer` with the CUDA plugin on the emulated CUDA of tests/standins/cuda, with the stand-in for NCCL: 3, 4 and 8
ranks with AdamW and Muon have the bits of whole optimizers, send what was computed, and go on after a kill."""
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from emulated_jobs import GPT, counted, job_text, snapshot_bits  # noqa: E402
from language_text import write_text  # noqa: E402
from shard_jobs import in_lines, muon_parts, parts_of  # noqa: E402
from world import World, model, sweep  # noqa: E402

SIZES = [12, 20, 24, 16, 3]
DEEP = """model: {type: mlp, sizes: %s, activation: gelu}
  data: {type: synthetic, samples: 500}
  optimizer: OPTIMIZER""" % SIZES
COUNT = sum(in_lines(a * b) + in_lines(b) for a, b in zip(SIZES, SIZES[1:]))
ADAMW = "{type: adamw, lr: 3.0e-3}"
MUON = "{type: muon, lr: 0.02, adamw: {lr: 3.0e-3}}"
TAIL = 64  # bytes that carry loss and votes


def deep(shard, optimizer, steps, every=None, out=None):
    return job_text(DEEP.replace("OPTIMIZER", optimizer), steps=steps, every=every or steps, out=out or shard, extra=f"shard: {shard}")


def run(directory, text, world, nodes=1, env=None, **more):
    with World(directory, text, world=world, nodes=nodes, env={r: env or {} for r in range(world)}, **more) as w:
        w.run()
        return w


def losses(w):
    return {r["step"]: r["loss"] for r in w.ranks[0].reports if "loss" in r}


def parts_have_the_bits_of_the_whole(directory, cases=((3, 1, ADAMW), (4, 2, MUON))):
    """Losses, parameters and moments are those of whole optimizers. In a step a rank gives NCCL all gradients and the tail to add up, and
    all parameters to gather, each once. Its state on the GPU is what was computed."""
    for world, nodes, optimizer in cases:
        at, sent, seen = f"{directory}/{world}-{nodes}-{optimizer[7:11]}", {}, {}
        for shard, steps in (("none", 7), ("optimizer", 7), ("optimizer", 3)):
            counts = f"{directory}/counts-{os.path.basename(at)}-{shard}-{steps}"
            w = run(at, deep(shard, optimizer, steps, out=f"{shard}-{steps}"), world, nodes, env={"DDP_STANDIN_NCCL_COUNTS": counts})
            lines = counted(counts)
            assert len(lines) == world, lines
            sent[shard, steps] = [(c["sum_bytes"], c["gather_bytes"] + c["broadcast_bytes"]) for c in lines]
            seen[shard, steps] = losses(w), snapshot_bits(at, f"{shard}-{steps}"), [r.reports[0]["state_bytes"] for r in w.ranks]
        assert seen["optimizer", 7][:2] == seen["none", 7][:2], (seen["optimizer", 7][0], seen["none", 7][0])
        for long, short in zip(sent["optimizer", 7], sent["optimizer", 3]):
            assert [(a - b) / 4 for a, b in zip(long, short)] == [4 * COUNT + TAIL, 4 * COUNT], sent
        whole, parts = seen["none", 7][2], seen["optimizer", 7][2]
        if optimizer == ADAMW:
            wanted = [8 * (COUNT - n) for n in parts_of(COUNT, world)]
        else:
            wanted = [4 * (muon_parts(SIZES, 1)[0] - n) for n in muon_parts(SIZES, world)]
        assert [a - b for a, b in zip(whole, parts)] == wanted, (whole, parts, wanted)


def eight_parts_have_the_bits_of_the_whole(directory):
    parts_have_the_bits_of_the_whole(directory, ((4, 1, ADAMW), (8, 2, ADAMW), (8, 1, MUON)))


def matrices_are_gathered_as_bf16(directory):
    """With precision: bf16, four ranks gather matrices as bf16 in steps after which parameters are not compared."""
    write_text(directory)
    gathered, bits = {}, {}
    for log in (1, 6):
        counts = f"{directory}/counts-{log}"
        text = job_text(GPT.replace("5, batches: 2", "8, batches: 1"), steps=8, every=8, out=f"log-{log}", precision="bf16", extra="shard: optimizer")
        w = run(directory, text.replace("log_every: 1", f"log_every: {log}"), 4, env={"DDP_STANDIN_NCCL_COUNTS": counts})
        gathered[log] = [c["gather_bytes"] + c["broadcast_bytes"] for c in counted(counts)]
        bits[log] = snapshot_bits(directory, f"log-{log}")
    assert bits[1] == bits[6] and set(gathered[1]) == {gathered[1][0]} and set(gathered[6]) == {gathered[6][0]}, gathered
    elements = sum(len(values) for name, (shape, values) in model(f"{directory}/log-6").items()
                   if name == "lm_head.weight" or (len(shape) == 2 and ".h." in name))
    # In seven of eight steps two bytes less for each element of a matrix; then all parameters once more, for the snapshot.
    saved = gathered[1][0] - gathered[6][0] + w.ranks[0].reports[0]["parameter_bytes"] - TAIL
    assert 0.95 * 7 * 2 * elements <= saved <= 7 * 2 * elements, (saved, elements, gathered)  # a matrix that is cut is filled up to a line
    return f"{saved} of {gathered[1][0]} bytes saved"


def killed_and_resumed(directory, optimizer=ADAMW):
    """One of four ranks is killed. The next generation ends with the bits of a run that was not cut off; one with three ranks has those
    of whole optimizers there."""
    text, committed = deep("optimizer", optimizer, 40, every=5, out="out"), {}
    run(f"{directory}/whole", text, 4, 2)
    with World(f"{directory}/cut", text, world=4, nodes=2, snapshots=committed) as w:
        w.kill_at_commit(1, 5)
        codes = w.wait()
        assert codes[1] == -signal.SIGKILL and [codes[r] for r in (0, 2, 3)] == [75] * 3, codes
    for name, world, nodes, shard in (("same", 4, 2, "optimizer"), ("three", 3, 1, "optimizer"), ("three-whole", 3, 1, "none")):
        shutil.copytree(f"{directory}/cut", f"{directory}/{name}")
        w = run(f"{directory}/{name}", text.replace("shard: optimizer", f"shard: {shard}"), world, nodes, snapshots=dict(committed), generation=2)
        assert min(losses(w)) > 5, losses(w)
    assert snapshot_bits(directory, "same/out") == snapshot_bits(directory, "whole/out")
    assert snapshot_bits(directory, "three/out") == snapshot_bits(directory, "three-whole/out")


def muon_killed_and_resumed(directory):
    killed_and_resumed(directory, MUON)


def parameters_come_beside_the_next_pass(directory):
    """Between steps at which parameters are compared, they come in pieces beside the next forward pass. A seed lets NCCL's stream run far
    behind and far ahead. The bits are those of a run that compares parameters after each step, so that it waits."""
    write_text(directory)
    language = GPT.replace("path: input", f"path: {directory}/input")
    wide = DEEP.replace(str(SIZES), "[12, 520, 520, 3]").replace("OPTIMIZER", "{type: sgd, lr: 1.0e-2, momentum: 0.9, clip: 0.5}")  # two pieces
    for name, text, world, seeds in (("gpt", job_text(language, steps=4, precision="bf16", extra="shard: optimizer\n  accumulate: 2"), 2, "12"),
                                     ("mlp", job_text(wide, steps=4, extra="shard: optimizer"), 3, "1")):
        waits = losses(run(f"{directory}/{name}", text, world))
        for seed in seeds:
            at, counts = f"{directory}/{name}-{seed}", f"{directory}/counts-{name}-{seed}"
            beside = run(at, text.replace("log_every: 1", "log_every: 4"), world, env={"DDP_EMULATED_SEED": seed, "DDP_STANDIN_NCCL_COUNTS": counts})
            told = losses(beside)
            assert told == {s: waits[s] for s in told} and len(told) < 4, (told, waits)
            assert snapshot_bits(at, "out") == snapshot_bits(f"{directory}/{name}", "out"), (name, seed)
            assert name == "gpt" or all(c["broadcasts"] > 3 * 2 for c in counted(counts)), counted(counts)  # three steps in two pieces


sweep("emulated shard", (parts_have_the_bits_of_the_whole, killed_and_resumed, eight_parts_have_the_bits_of_the_whole,
                         matrices_are_gathered_as_bf16, muon_killed_and_resumed,
                         parameters_come_beside_the_next_pass))
