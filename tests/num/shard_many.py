#!/usr/bin/python3
"""Tests `shard: optimizer` as shard.py does, with up to eight ranks, and where it takes longer."""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from language_text import write_text  # noqa: E402
from shard_jobs import (  # noqa: E402
    ADAMW, CLIPPED, DEEP, MUON, ODD, gpt, in_lines, job, kill_and_resume, kill_at, moved_a_step, parts_of, run, same_state, sizes,
    small_bytes, step_bytes)
from world import sweep  # noqa: E402

WIDE_SIZES = [13, 601, 7]
WIDE = f"{{type: mlp, sizes: {WIDE_SIZES}, activation: tanh}}"


def bytes_of_many_ranks(directory):
    """Four and eight ranks, on nodes of one or two, send in a step what is computed for gradients and parameters, and a little for the
    norm."""
    count = sum(in_lines(a * b) + in_lines(b) for a, b in zip(WIDE_SIZES, WIDE_SIZES[1:]))
    said = []
    for world, nodes in ((4, 2), (4, 4), (8, 4), (8, 8)):
        moved, w = moved_a_step(f"{directory}/{world}-{nodes}", lambda steps: job("optimizer", CLIPPED, steps=steps, model_text=WIDE), world, nodes)
        assert [sizes(w, r, "optimizer_bytes") for r in range(world)] == [8 * n for n in parts_of(count, world)]
        wanted, small = step_bytes(count, world, nodes), small_bytes(count, world)
        assert wanted <= moved <= wanted + small, (world, nodes, moved, wanted, small)
        said.append(f"{world} on {nodes} {moved / wanted:.3f}")
    return "of what gradients and parameters take: " + ", ".join(said)


def killed_and_resumed_in_another_world(directory, optimizer=ADAMW, model_text=ODD):
    """A run of four ranks is killed and goes on with three or eight. It has the bits of a run that goes on there with whole
    optimizers."""
    text, committed = job("optimizer", optimizer, steps=60, every=11, model_text=model_text), {}
    kill_at(f"{directory}/cut", text, 4, 2, committed)
    for world, nodes in ((3, 1), (8, 2)):
        for shard in ("optimizer", "none"):
            at = f"{directory}/{shard}-{world}"
            shutil.copytree(f"{directory}/cut", at)
            w = run(at, text.replace("shard: optimizer", f"shard: {shard}"), world, nodes, snapshots=dict(committed), generation=2)
            assert w.ranks[0].reports[0]["step"] >= 11, w.ranks[0].reports[0]
        same_state(f"{directory}/optimizer-{world}/out", f"{directory}/none-{world}/out")


def muon_killed_and_resumed_in_another_world(directory):
    killed_and_resumed_in_another_world(directory, MUON, DEEP)


def killed_while_matrices_travel_as_bf16(directory):
    """Between two steps at which all parameters are compared, a rank has the matrices of others as bf16 only. A snapshot has all of
    them nevertheless."""
    write_text(directory)
    text, committed = gpt("optimizer", directory, CLIPPED, steps=60, log=20), {}
    run(f"{directory}/whole", text, 4, 2)
    kill_and_resume(f"{directory}/cut", text, 4, 2, committed, step=9)
    assert any(step % 20 for _, step in committed), committed
    same_state(f"{directory}/whole/out", f"{directory}/cut/out")


def eight_ranks_to_whole_and_back(directory):
    """From eight ranks to fewer and back, whole and divided, with the bits of whole optimizers in the same worlds."""
    for optimizer, model_text in ((ADAMW, ODD), (MUON, DEEP)):
        at = f"{directory}/{optimizer[7:11]}"
        for name, ways in (("alternating", ("optimizer", "none", "optimizer", "optimizer", "none")), ("whole", ["none"] * 5)):
            committed = {}
            for i, (world, shard) in enumerate(zip((8, 8, 4, 8, 2), ways)):
                run(f"{at}/{name}", job(shard, optimizer, steps=15 * (i + 1), model_text=model_text), world, 2, snapshots=committed, generation=i + 1)
            assert len(committed) == 5, committed
        same_state(f"{at}/alternating/out", f"{at}/whole/out")


sweep("shard", [bytes_of_many_ranks, killed_and_resumed_in_another_world, muon_killed_and_resumed_in_another_world,
                killed_while_matrices_travel_as_bf16, eight_ranks_to_whole_and_back])
