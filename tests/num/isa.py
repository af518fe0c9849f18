#!/usr/bin/python3
"""Results differ in the last bits between instruction sets. Each rank reports its instruction set, and `isa` in the job file
chooses one. A warning names ranks that differ, and `reproducible: world` refuses them. On a CPU without AVX2 there is only one
set and nothing to compare."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, sweep  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: mlp, sizes: [12, 240, 160, 3], activation: gelu}
  data: {type: synthetic, samples: 500}
  optimizer: {type: adamw, lr: 3.0e-3}
  global_batch: 24
  steps: 20
  seed: 5
  log_every: 5
  EXTRA
"""
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "DNNL_MAX_CPU_ISA": "AVX2"}  # both names, because oneDNN 2.7 changed the name


def device(rank):
    return re.search(r"event=sizes .*\bdevice=cpu:(\S+)", rank.err).group(1)


def digests(w):
    return [(r["step"], r["digest_high"], r["digest_low"]) for r in w.ranks[0].reports if "digest_low" in r]


def train(directory, extra="", **kw):
    with World(directory, JOB.replace("EXTRA", extra), **kw) as w:
        codes = w.wait()
        return codes, [device(r) if codes[r.rank] == 0 else None for r in w.ranks], digests(w), w.ranks


def own_set(directory):
    codes, sets, _, ranks = train(directory)
    assert codes == [0], ranks[0].err
    return sets[0]


def pinned_by_the_job_file(directory):
    best = own_set(directory)
    for name in ("base", "avx2"):
        codes, sets, want, ranks = train(directory, "isa: " + name)
        if name == "avx2" and best == "base":
            assert codes == [78] and "this node's CPU has no" in ranks[0].err, ranks[0].err
            return
        assert (codes, sets) == ([0], [name]), ranks[0].err
    # oneDNN's own variable chooses the set, too, with the same bits. The job file takes precedence over it.
    codes, sets, same, ranks = train(directory, env={0: AVX2})
    assert (codes, sets) == ([0], ["avx2"]) and same == want, (sets, same, want)
    codes, sets, _, ranks = train(directory, "isa: " + best, env={0: AVX2})
    assert (codes, sets) == ([0], [best]), ranks[0].err
    if best != "avx2":
        assert train(directory)[2] != want, "the largest set gives the bits of avx2: this test shows nothing"


def a_set_that_the_cpu_lacks(directory):
    if own_set(directory) == "avx512_amx":
        return
    codes, _, _, ranks = train(directory, "isa: avx512_amx")
    assert codes == [78] and "isa: avx512_amx: this node's CPU has no" in ranks[0].err, ranks[0].err


def auto_leaves_out_slow_instructions(directory):
    """Intel's processors without tiles have instructions for bf16 that are slower than those for floats. A job can ask for them."""
    with open("/proc/cpuinfo") as f:
        info = f.read()
    flags = set(" ".join(re.findall(r"^flags\s*: (.*)$", info, re.M)[:1]).split())
    if not {"avx512_bf16", "avx512_vnni"} <= flags or "amx_tile" in flags:
        return
    slow = "GenuineIntel" in info and "avx512_fp16" in flags
    assert own_set(directory) == ("avx512" if slow else "avx512_bf16")
    codes, sets, _, ranks = train(directory, "isa: avx512_bf16")
    assert (codes, sets) == ([0], ["avx512_bf16"]), ranks[0].err


def ranks_that_differ_are_named(directory):
    best = own_set(directory)
    if best in ("base", "avx2"):
        return
    codes, sets, _, ranks = train(directory, world=3, nodes=3, env={1: AVX2})
    assert (codes, sets) == ([0] * 3, [best, "avx2", best]), (codes, sets)
    said = f"cpu:{best} on rank 0 (node0), rank 2 (node2); cpu:avx2 on rank 1 (node1)"
    assert "event=ranks_compute_differently" in ranks[0].err and said in ranks[0].err, ranks[0].err
    assert "event=ranks_compute_differently" not in ranks[1].err
    codes, _, _, ranks = train(directory, "isa: avx2", world=3, nodes=3, env={1: AVX2})
    assert codes == [0] * 3 and all("ranks_compute_differently" not in r.err for r in ranks)
    codes, _, _, ranks = train(directory, "reproducible: world", world=2, nodes=2, env={1: AVX2})
    assert codes == [78] * 2 and all("set train.isa to an instruction set that all CPUs have" in r.err for r in ranks), [r.err for r in ranks]


sweep("isa", [pinned_by_the_job_file, a_set_that_the_cpu_lacks, auto_leaves_out_slow_instructions,
              ranks_that_differ_are_named])
