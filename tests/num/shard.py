#!/usr/bin/python3
"""Tests `shard: optimizer`: the run is that of whole optimizers, each rank holds its part of the moments, and a run that was killed
goes on whole or divided, in a world of any size. shard_many.py has the cases that take longer."""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from language_text import write_text  # noqa: E402
from shard_jobs import (  # noqa: E402
    ADAMW, CLIPPED, COUNT, DEEP, DEEP_SIZES, MUON, MUON_CLIPPED, ODD, SGD, TINY, array_bytes, close, gpt, job, kill_and_resume, losses,
    moved_a_step, muon_parts, parts_of, run, same_state, sizes, small_bytes, state_of, step_bytes)
from world import BIN, World, difference, model, moments, newest, state_bits, sweep  # noqa: E402


def a_divided_run_is_that_of_whole_optimizers(directory):
    """The same bits on one node and on two. On more nodes sums have another order; and the norm of a gradient, by which it is clipped, is
    always taken in blocks. Each run has the same bits again."""
    worst = 0.0
    for world, nodes, optimizer, model_text in ((2, 1, ADAMW, ODD), (3, 1, SGD, ODD), (4, 1, CLIPPED, TINY), (4, 2, SGD, ODD),
                                                (4, 2, ADAMW, ODD), (3, 3, CLIPPED, ODD), (8, 4, ADAMW, ODD)):
        at = f"{directory}/{world}-{nodes}-{optimizer[7:10]}-{len(optimizer)}-{len(model_text)}"
        plain = run(at + "/plain", job("none", optimizer, model_text=model_text), world, nodes)
        divided = run(at + "/divided", job("optimizer", optimizer, model_text=model_text), world, nodes)
        assert close(losses(plain), losses(divided)), (losses(plain), losses(divided))
        if nodes <= 2 and optimizer != CLIPPED:
            same_state(at + "/plain/out", at + "/divided/out")
        far = max(difference(model(at + "/plain/out"), model(at + "/divided/out")),
                  difference(moments(at + "/plain/out"), moments(at + "/divided/out")))
        worst = max(worst, far)
        assert far < 1e-6, (world, nodes, far)
        if nodes > 2:
            run(at + "/again", job("optimizer", optimizer, model_text=model_text), world, nodes)
            same_state(at + "/divided/out", at + "/again/out")
    return f"largest relative difference {worst:.1e}"


def check_muon_memory(w, floats):
    """Parameters and gradients are whole. floats: of each rank's moments, in what was allocated and in what was computed."""
    told, count = state_of(w), w.ranks[0].reports[0]["parameter_bytes"] // 4 - 16
    assert [x["state_bytes"] - 2 * array_bytes(count) for x in told] == [4 * n for n in floats], (told, floats)
    assert [round(x["bytes_per_parameter"] * count) for x in told] == [8 * count + 4 * n for n in floats], (told, floats)


def matrices_of_muon_stay_whole(directory):
    """With 2, 3, 4 and 8 ranks the run is that of whole optimizers. Each matrix is updated by one rank. With `clip` the norm of a gradient
    is rounded in another way, and Newton's steps enlarge the rounding of a matrix (by up to 3.4 each): there the losses are equal to 1e-6,
    but not all parameters."""
    worst, said = 0.0, []
    for world, nodes, optimizer in ((2, 1, MUON), (3, 1, MUON), (4, 2, MUON), (8, 2, MUON), (4, 2, MUON_CLIPPED)):
        at = f"{directory}/{world}-{nodes}-{len(optimizer)}"
        plain = run(at + "/plain", job("none", optimizer, model_text=DEEP), world, nodes)
        divided = run(at + "/divided", job("optimizer", optimizer, model_text=DEEP), world, nodes)
        assert close(losses(plain), losses(divided)), (losses(plain), losses(divided))
        if optimizer == MUON:
            same_state(at + "/plain/out", at + "/divided/out")
        worst = max(worst, difference(model(at + "/plain/out"), model(at + "/divided/out")),
                    difference(moments(at + "/plain/out"), moments(at + "/divided/out")))
        assert worst < 1e-5, (world, nodes, worst)
        check_muon_memory(plain, muon_parts(DEEP_SIZES, 1) * world)
        check_muon_memory(divided, muon_parts(DEEP_SIZES, world))
        most = max(sizes(divided, r, "optimizer_bytes") for r in range(world))  # with room to update the largest matrix
        assert most < sizes(plain, 0, "optimizer_bytes"), (world, most)
        said.append(f"{most}")
    return f"largest relative difference {worst:.1e}, bytes of the largest part {', '.join(said)} of {sizes(plain, 0, 'optimizer_bytes')}"


def memory_and_bytes_are_as_computed(directory):
    """Moments: 8 bytes for each parameter of the rank's part. Each step moves as many bytes as with whole optimizers, and a little
    for the norm."""
    for world, nodes in ((2, 1), (3, 3)):
        moved = {}
        for shard, floats in (("none", [COUNT] * world), ("optimizer", parts_of(COUNT, world))):
            moved[shard], w = moved_a_step(f"{directory}/{world}-{shard}", lambda steps: job(shard, CLIPPED, steps=steps), world, nodes)
            assert [sizes(w, r, "optimizer_bytes") for r in range(world)] == [8 * n for n in floats], floats
            # What is computed for a parameter, and what was allocated: two arrays in whole pages, and the moments.
            told = state_of(w)
            assert [round(x["bytes_per_parameter"] * COUNT) for x in told] == [8 * COUNT + 8 * n for n in floats], told
            assert [x["state_bytes"] for x in told] == [2 * array_bytes(COUNT) + 8 * n for n in floats], told
        wanted, small = step_bytes(COUNT, world, nodes), small_bytes(COUNT, world)
        assert wanted <= moved["optimizer"] <= wanted + small, (moved, wanted, small)
        assert nodes == 1 or abs(moved["optimizer"] - moved["none"]) <= small, moved


def bytes_of_16_steps(w, world):
    """What is saved if matrices travel as bf16 after 16 of 20 steps, and all parameters again as floats before the evaluations after two
    of them."""
    elements = sum(len(values) for name, (shape, values) in model(os.path.join(w.directory, "out")).items()
                   if name == "lm_head.weight" or (len(shape) == 2 and ".h." in name))
    count = w.ranks[0].reports[0]["parameter_bytes"] // 4 - 16
    return (world - 1) * (16 * 2 * elements - 2 * 4 * count)


def matrices_travel_as_bf16(directory):
    """With bf16, products read matrices as bf16, and nothing else of them is read. So ranks send each other matrices as bf16, except after
    steps at which all parameters are compared (log_every). The run has the bits of one that compares them after each step, and of a
    plain run."""
    write_text(directory)
    for world, nodes, optimizer, tied in ((2, 1, ADAMW, "true"), (3, 3, CLIPPED, "false"), (4, 2, MUON, "true")):
        at = f"{directory}/{world}"
        every = 1000 if optimizer == CLIPPED else 9  # a snapshot that comes while one is written is skipped, with its bytes
        packed = run(f"{at}/packed", gpt("optimizer", directory, optimizer, tied=tied, every=every), world, nodes)
        if optimizer != MUON:  # a parameter takes 10 bytes on each rank, with its copy as bf16, and 8 on the rank that updates it
            told, count = state_of(packed), packed.ranks[0].reports[0]["parameter_bytes"] // 4 - 16
            wanted = [10 * count + 8 * n for n in parts_of(count, world)]
            assert [round(x["bytes_per_parameter"] * count) for x in told] == wanted, (told, wanted)
            assert [x["state_bytes"] - 2 * (array_bytes(count) - 4 * count) for x in told] == wanted, (told, wanted)
        floats = run(f"{at}/floats", gpt("optimizer", directory, optimizer, tied=tied, every=every, log=1), world, nodes)
        told = [x[:2] for x in losses(packed)]
        assert len(told) >= 6 and told == [x[:2] for x in losses(floats) if x[0] in dict(told)], told
        assert packed.last("val_loss") == floats.last("val_loss")
        same_state(f"{at}/floats/out", f"{at}/packed/out")
        if optimizer != CLIPPED:
            plain = run(f"{at}/plain", gpt("none", directory, optimizer, tied=tied), world, nodes)
            assert [x[:2] for x in losses(plain)] == told
            same_state(f"{at}/plain/out", f"{at}/packed/out")
        if optimizer == CLIPPED:  # both runs exchange squares after each step
            saved = sum(floats.last("sync_bytes", r) - packed.last("sync_bytes", r) for r in range(world))
            wanted, small = bytes_of_16_steps(packed, world), 16 * world * world * 300
            assert abs(saved - wanted) < small < wanted / 2, (world, saved, wanted, small)
    for i, shard in enumerate(("none", "optimizer", "none")):
        run(f"{directory}/resumed", gpt(shard, directory, steps=(6, 13, 20)[i]), 2, generation=i + 1)
    same_state(f"{directory}/2/plain/out", f"{directory}/resumed/out")


def parameters_come_in_pieces(directory):
    """Between nodes parameters come in pieces while the next forward pass computes. The bits are those of a run that waits for all of
    them after each step (log_every: 1)."""
    write_text(directory)
    large = "{type: mlp, sizes: [13, 600, 600, 7], activation: tanh}"
    for world, nodes in ((2, 2), (3, 3), (4, 2)):
        texts = {f"gpt-{log}": gpt("optimizer", directory, steps=12, log=log, every=5).replace("layers: 2, heads: 3, width: 27", "layers: 6, heads: 3, width: 96")
                 for log in (1, 7)}
        texts.update({f"mlp-{log}": job("optimizer", steps=12, every=5, model_text=large).replace("log_every: 5", f"log_every: {log}") for log in (1, 7)})
        for name, text in texts.items():
            run(f"{directory}/{world}-{name}", text, world, nodes)
        for name in ("gpt", "mlp"):
            same_state(f"{directory}/{world}-{name}-1/out", f"{directory}/{world}-{name}-7/out")
        if nodes == 2:
            run(f"{directory}/{world}-plain", texts["mlp-7"].replace("shard: optimizer", "shard: none"), world, nodes)
            same_state(f"{directory}/{world}-plain/out", f"{directory}/{world}-mlp-7/out")


def killed_and_resumed(directory, optimizer=CLIPPED, model_text=ODD):
    """Kills a rank while a snapshot is committed. The next generation ends with the bits of a run that was not cut off."""
    text = job("optimizer", optimizer, steps=120, every=11, model_text=model_text)
    text = text.replace("every: 1000", "every: 40")  # an evaluation waits for the best before it
    whole, cut, committed = f"{directory}/whole", f"{directory}/cut", {}
    run(whole, text, 4, 2)
    kill_and_resume(cut, text, 4, 2, committed)
    same_state(whole + "/out", cut + "/out")


def muon_killed_and_resumed(directory):
    killed_and_resumed(directory, MUON_CLIPPED, DEEP)


def whole_to_divided_and_back(directory, optimizer=ADAMW, model_text=ODD):
    """Each run may go on in the other way, in a world of the same size or of any other. It
    has the bits of a run of whole optimizers in the same worlds. (A run in one world only differs: other numbers of ranks add up
    gradients in another order, and AdamW divides a rounding by the size of the gradient. This is not the work of `shard`.)"""
    run(f"{directory}/plain", job("none", optimizer, steps=60, model_text=model_text), 2)
    for name, ways in (("alternating", ("none", "optimizer", "none", "optimizer")), ("whole", ["none"] * 4)):
        committed = {}
        for i, (world, shard) in enumerate(zip((2, 2, 4, 3), ways)):
            run(f"{directory}/{name}", job(shard, optimizer, steps=15 * (i + 1), model_text=model_text), world, 1 + (world == 4),
                snapshots=committed, generation=i + 1)
        assert len(committed) == 4, committed
    same_state(f"{directory}/alternating/out", f"{directory}/whole/out")
    far = difference(model(f"{directory}/plain/out"), model(f"{directory}/alternating/out"))
    assert far < 1e-5, far
    return f"relative difference to a run in one world {far:.1e}"


def muon_whole_to_divided_and_back(directory):
    return whole_to_divided_and_back(directory, MUON, DEEP)


def the_same_bits_in_every_world(directory):
    first = None
    for world, nodes, shard in ((1, 1, "optimizer"), (2, 1, "optimizer"), (4, 2, "optimizer")):
        at = f"{directory}/{world}-{nodes}-{shard}"
        run(at, job(shard, CLIPPED, more="  reproducible: world\n").replace("global_batch: 60", "global_batch: 64"), world, nodes)
        bits = state_bits(at + "/out")
        first = first or bits
        assert bits == first, (world, nodes)


def portions_of_a_step_may_differ(directory):
    env = {r: {"DDP_TEST_SAMPLE_NS": "1000,3000,1500"} for r in range(3)}
    for shard in ("none", "optimizer"):
        w = run(f"{directory}/{shard}", job(shard, more="  balance: speed\n"), 3, env=env)
        assert [w.last("balance_samples", r) for r in range(3)] == [30, 10, 20]
    same_state(f"{directory}/none/out", f"{directory}/optimizer/out")


def a_stop_and_a_standalone_run(directory):
    """One process alone holds all of the optimizer."""
    text = job("optimizer", steps=20)
    with open(f"{directory}/job.yaml", "w") as f:
        f.write(text)
    subprocess.run([f"{BIN}/ddp-trainer", "--standalone", "job.yaml"], cwd=directory, check=True, capture_output=True, timeout=60)
    run(f"{directory}/one", job("none", steps=20), 1)
    same_state(f"{directory}/out", f"{directory}/one/out")
    committed = {}
    with World(f"{directory}/stop", job("optimizer", steps=10**6), world=2, snapshots=committed) as w:
        w.until_step(20)
        w.kill(1, signal.SIGTERM)
        assert w.wait() == [75, 143]
    assert committed, "no snapshot at the stop"
    step = max(step for _, step in committed)
    run(f"{directory}/plain", job("none", steps=step), 2)
    with open(os.path.join(newest(f"{directory}/stop/out"), "COMMITTED.json")) as f:
        assert json.load(f)["step"] == step
    same_state(f"{directory}/stop/out", f"{directory}/plain/out")


sweep("shard", [matrices_travel_as_bf16, matrices_of_muon_stay_whole, muon_killed_and_resumed, muon_whole_to_divided_and_back,
                a_divided_run_is_that_of_whole_optimizers, memory_and_bytes_are_as_computed, killed_and_resumed,
                whole_to_divided_and_back, the_same_bits_in_every_world, portions_of_a_step_may_differ, a_stop_and_a_standalone_run],
      [parameters_come_in_pieces])
