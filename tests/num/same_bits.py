#!/usr/bin/python3
"""`reproducible: world` gives the same bits at every world size, on one node and on several, and after kill -9 and resume at
another size. Also tests the digests by which ranks and runs are compared."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from language_text import write_text  # noqa: E402
from world import World, data_alone, sweep  # noqa: E402

MLP = """
  model: {type: mlp, sizes: [12, 24, 16, 3], activation: gelu}
  data: {type: synthetic, samples: 500}
"""
GPT = """
  model: {type: gpt, layers: 2, heads: 2, width: 32, context: 16, dropout: 0.1}
  data: {type: text, path: input.txt}
"""
JOB = """
name: t
device: cpu
train:
  MODEL
  optimizer: OPTIMIZER
  schedule: {type: cosine, warmup: 5}
  global_batch: 24
  accumulate: ACCUMULATE
  steps: 60
  seed: 5
  snapshot: {dir: OUT, every: 20}
  log_every: 5
  eval: {every: 25}
  EXTRA
"""
FILES = ("model.safetensors", "optimizer.safetensors")
LAYOUTS = ((1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4))  # ranks, nodes


ADAMW = "{type: adamw, lr: 3.0e-3, weight_decay: 0.01, clip: 0.5}"
MUON = "{type: muon, lr: 0.02, clip: 0.5, adamw: {lr: 3.0e-3}}"


def job(out="out", model=MLP, extra="reproducible: world", accumulate=1, optimizer=ADAMW):
    return JOB.replace("OPTIMIZER", optimizer).replace("MODEL", model.strip()).replace("OUT", out).replace("EXTRA", extra) \
        .replace("ACCUMULATE", str(accumulate))


def digests(w, rank=0):
    """Returns {step: digest} of rank 0's reports."""
    return {r["step"]: (r["digest_high"], r["digest_low"]) for r in w.ranks[rank].reports if "digest_low" in r}


def numbers(w, name):
    return [(r["step"], r[name]) for r in w.ranks[0].reports if name in r]


def every_layout(directory, **kw):
    first = None
    for world, nodes in LAYOUTS:
        out = f"w{world}n{nodes}"
        with World(directory, job(out, **kw), world=world, nodes=nodes) as w:
            w.run()
        assert sorted(digests(w)) == list(range(0, 61, 5)), digests(w)
        seen = digests(w), numbers(w, "loss"), numbers(w, "grad_norm"), numbers(w, "val_loss")
        first = first or seen
        assert seen == first, (world, nodes, seen, first)
        for name in FILES:
            assert data_alone(f"{directory}/{out}", name) == data_alone(f"{directory}/w1n1", name), (world, nodes, name)
    return f"digest {int(first[0][60][0]):08x}{int(first[0][60][1]):08x} on {len(LAYOUTS)} layouts"


def mlp_on_every_layout(directory):
    return every_layout(directory)


def gpt_on_every_layout(directory):
    """The model has dropout. Its masks depend on samples, not on ranks, so they are the same on every layout."""
    write_text(directory)
    return every_layout(directory, model=GPT)


def muon_on_every_layout(directory):
    """Each rank computes the whole update of Muon from the same gradients."""
    write_text(directory)
    return every_layout(directory, model=GPT, optimizer=MUON)


def muon_killed_and_resumed_at_another_size(directory):
    write_text(directory)
    return killed_and_resumed_at_another_size(directory, model=GPT, optimizer=MUON)


def gpt_killed_and_resumed_at_another_size(directory):
    write_text(directory)
    return killed_and_resumed_at_another_size(directory, model=GPT)


def mlp_in_micro_batches(directory):
    return every_layout(directory, accumulate=3, extra="reproducible: world\n  shards: 8")


def without_it_layouts_differ(directory):
    """Without `reproducible: world` layouts differ. Otherwise the tests above would prove nothing."""
    ends = set()
    for world in (1, 4):
        with World(directory, job(f"w{world}", extra=""), world=world) as w:
            w.run()
        ends.add(digests(w)[60])
    assert len(ends) == 2, ends


def killed_and_resumed_at_another_size(directory, **kw):
    with World(directory, job("whole", **kw)) as w:
        w.run()
        whole = digests(w)
    committed = {}
    for generation, (world, nodes) in enumerate(((4, 2), (1, 1), (2, 1)), 1):
        with World(directory, job("out", **kw), world=world, nodes=nodes, snapshots=committed,
                   generation=generation) as w:
            if generation == 3:
                w.run()
            else:
                w.until_commit(20 * generation)
                w.kill(world - 1)
                codes = w.wait()
                assert codes[world - 1] in (-signal.SIGKILL, 0), codes
            for step, digest in digests(w).items():
                assert digest == whole[step], (generation, step)
    for name in FILES:
        assert data_alone(f"{directory}/out", name) == data_alone(f"{directory}/whole", name), name


def a_world_that_does_not_divide(directory):
    with World(directory, job(), world=3) as w:
        codes = w.wait()
        assert codes == [78] * 3, codes
        assert "with 4 shards needs a world size that divides the number of shards, got 3" in w.ranks[1].err, w.ranks[1].err


sweep("same bits", [mlp_on_every_layout, gpt_on_every_layout, gpt_killed_and_resumed_at_another_size,
                    muon_killed_and_resumed_at_another_size, mlp_in_micro_batches, without_it_layouts_differ,
                    killed_and_resumed_at_another_size, a_world_that_does_not_divide],
      [muon_on_every_layout])
