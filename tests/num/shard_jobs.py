"""Jobs with `shard: optimizer`, how tests run them, and what a rank should hold: for shard.py, shard_many.py and shard_snapshots.py."""
import os
import re
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, state_bits  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {model}
  data: {{type: synthetic, samples: 500}}
  optimizer: {optimizer}
  global_batch: 60
  steps: {steps}
  seed: 5
  shard: {shard}
  snapshot: {{dir: out, every: {every}, keep: 2, keep_best: 1}}
  eval: {{every: 1000}}
  log_every: 5
"""
ADAMW = "{type: adamw, lr: 3.0e-3}"
CLIPPED = "{type: adamw, lr: 3.0e-3, clip: 0.3}"
MUON = "{type: muon, lr: 0.02, adamw: {lr: 3.0e-3}}"
MUON_CLIPPED = "{type: muon, lr: 0.02, clip: 0.3, adamw: {lr: 3.0e-3}}"
SGD = "{type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}"
ODD = "{type: mlp, sizes: [13, 61, 7], activation: tanh}"
# Matrices of odd sizes; muon updates all but the last. Six of them, so with eight ranks some have none.
DEEP_SIZES = [13, 37, 61, 29, 23, 31, 17, 7]
DEEP = f"{{type: mlp, sizes: {DEEP_SIZES}, activation: tanh}}"
COUNT = 800 + 64 + 432 + 16  # its floats: each tensor begins at a line of 16
TINY = "{type: linear, in: 20, out: 1}"  # fewer parameters than one part may have


def job(shard, optimizer=ADAMW, steps=20, every=1000, model_text=ODD, more="", kept="auto"):
    text = JOB.format(shard=shard, optimizer=optimizer, steps=steps, every=every, model=model_text) + more
    return text if kept == "auto" else text.replace("keep_best: 1", f"keep_best: 1, moments: {kept}")


def gpt(shard, directory, optimizer=ADAMW, steps=20, tied="true", log=5, every=9):
    """A small language model in bf16. It is evaluated after steps 7 and 14."""
    model_text = f"{{type: gpt, layers: 2, heads: 3, width: 27, context: 7, tied: {tied}}}"
    text = job(shard, optimizer, steps, every, model_text, "  precision: bf16\n").replace("eval: {every: 1000}", "eval: {every: 7, batches: 3}")
    text = text.replace("{type: synthetic, samples: 500}", f"{{type: text, path: {directory}/input.txt}}")
    return text.replace("global_batch: 60", "global_batch: 12").replace("log_every: 5", f"log_every: {log}")


def run(directory, text, world, nodes=1, **more):
    with World(directory, text, world=world, nodes=nodes, **more) as w:
        w.run()
        return w


def losses(w):
    return [(r["step"], r["loss"], r["grad_norm"]) for r in w.ranks[0].reports if "loss" in r]


def close(a, b):
    return all(x[0] == y[0] and abs(x[1] - y[1]) < 1e-6 and abs(x[2] - y[2]) < 1e-6 * x[2] for x, y in zip(a, b, strict=True))


def same_state(a, b):
    """The same bits of all parameters and moments, wherever these lie."""
    assert state_bits(a) == state_bits(b), f"{a} and {b} differ"


def sizes(w, rank, name):
    return int(re.search(rf"event=sizes .*\b{name}=(\d+)", w.ranks[rank].err).group(1))


# ---- memory

def in_lines(floats):
    """Each tensor begins at a line of 16 floats."""
    return (floats + 15) // 16 * 16


def parts_of(count, world):
    """The parameters of each rank, with adamw and sgd: whole blocks of 64, and as many on each rank but the last ones."""
    each = (-(-count // 64) + world - 1) // world * 64
    parts = [max(0, min(count, (r + 1) * each) - min(count, r * each)) for r in range(world)]
    assert sum(parts) == count, parts
    return parts


def array_bytes(count):
    """What is allocated for an array of that many parameters, and for loss and votes behind it: whole pages."""
    return (4 * (count + 16) + 4096) // 4096 * 4096


def muon_pieces(sizes):
    """The moments of an MLP that Muon updates, cut as ranks may share them: pairs of the floats that are balanced, and those that are
    held. A matrix has one moment for each parameter and is not cut; the gap behind it has two, but counts once. Other parameters have
    two, in blocks of 64. The last matrix is one of these others."""
    pieces, others = [], 0

    def blocks():
        return [(2 * min(64, others - at),) * 2 for at in range(0, others, 64)]
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
        weight, bias = fan_in * fan_out, in_lines(fan_out)
        if i + 2 < len(sizes):
            pieces += [*blocks(), (in_lines(weight), 2 * in_lines(weight) - weight)]
            others = bias
        else:
            others += in_lines(weight) + bias
    return pieces + blocks()


def least_largest(pieces, world):
    """Returns the sum of the largest part if that is as small as possible, by trying each place of each cut."""
    best = {0: 0}  # the first pieces, by their number -> the largest part so far
    for _ in range(world):
        now = {}
        for begun, largest in best.items():
            floats = 0
            for end in range(begun, len(pieces) + 1):
                now[end] = min(now.get(end, float("inf")), max(largest, floats))
                floats += pieces[end] if end < len(pieces) else 0
        best = now
    return best[len(pieces)]


def muon_parts(sizes, world):
    """The floats of each rank's moments: pieces in their order, each rank filled as far as the largest part allows."""
    pieces, parts, balanced = muon_pieces(sizes), [0], 0
    most = least_largest([p[0] for p in pieces], world)
    for floats, held in pieces:
        if balanced + floats > most:
            parts.append(0)
            balanced = 0
        balanced += floats
        parts[-1] += held
    return parts + [0] * (world - len(parts))


def state_of(w):
    """What each rank has told about its memory before the first step."""
    return [r.reports[0] for r in w.ranks]


# ---- bytes

def moved_a_step(directory, text_of, world, nodes):
    """Returns the bytes that all ranks send in a step, from two runs of 10 and 30 steps, and the first run."""
    at = {steps: run(f"{directory}-{steps}", text_of(steps), world, nodes) for steps in (10, 30)}
    return sum(at[30].last("sync_bytes", r) - at[10].last("sync_bytes", r) for r in range(world)) / 20, at[10]


def step_bytes(count, world, nodes):
    """Of gradients and parameters, what all ranks send in a step. Reduce-scatter: whoever adds up a float gets it from all other ranks,
    or from nodes that have added up theirs. Gather: each part goes once to each other rank; on several nodes once to each other node,
    where all ranks share the memory, after the ranks of a node have divided its parts among themselves."""
    on_node = world // nodes
    gather = world - 1 if nodes == 1 else nodes - 1 + (on_node - 1) / on_node
    return 4 * count * (world - 1 + gather)


def small_bytes(count, world):
    """At most that many bytes of a step are no gradients and parameters: a sum for loss and votes, and the squares of blocks."""
    return world * (8 * -(-count // 64) + 64 + 200)


# ---- kills

def kill_at(directory, text, world, nodes, committed, step=11):
    """Kills rank 1 while the snapshot of that step, or of a later one, is committed."""
    with World(directory, text, world=world, nodes=nodes, snapshots=committed) as w:
        w.kill_at_commit(1, step)
        codes = w.wait()
        assert codes[1] == -signal.SIGKILL and [codes[r] for r in range(world) if r != 1] == [75] * (world - 1), codes


def kill_and_resume(directory, text, world, nodes, committed, step=11):
    """The second generation begins at a snapshot of the first one, and ends the run."""
    kill_at(directory, text, world, nodes, committed, step)
    w = run(directory, text, world, nodes, snapshots=committed, generation=2)
    assert w.ranks[0].reports[0]["step"] >= step, w.ranks[0].reports[0]
