#!/usr/bin/python3
"""Tests the trainer on a device whose memory the host cannot touch (strict.c): code that reads or writes it without the
device's operations crashes. The device computes with the CPU's operations, so all results must have the CPU's bits. Also
tests which device a worker chooses."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from language_text import write_text  # noqa: E402
from world import BIN, World, newest, raw, state_bits, sweep  # noqa: E402

PLUGIN = os.path.join(os.environ.get("DDP_BUILD", os.path.join(BIN, "..")), "tests", "libddp_strict.so")
JOB = """
name: t
device: DEVICE
train:
  MODEL
  global_batch: 24
  steps: STEPS
  seed: 5
  snapshot: {dir: OUT, every: 25}
  log_every: 5
  eval: {every: 20}
"""
MLP = """model: {type: mlp, sizes: [12, 24, 16, 3], activation: gelu}
  data: {type: synthetic, samples: 500}"""
GPT = """model: {type: gpt, layers: 2, heads: 2, width: 32, context: 16}
  data: {type: text, path: input.txt, symbols: byte}"""  # 256 symbols: rows of logits need no padding to whole cache lines
ADAMW = "\n  optimizer: {type: adamw, lr: 3.0e-3, weight_decay: 0.01, clip: 0.5}"
MUON = "\n  optimizer: {type: muon, weight_decay: 0.01, clip: 0.5, adamw: {lr: 3.0e-3}}"
WORLD = "\n  reproducible: world\n  shards: 4"
FILES = ("model.safetensors", "optimizer.safetensors")
NUMBERS = ("loss", "grad_norm", "lr", "digest_high", "digest_low", "val_loss", "val_acc")

os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def job(model, device, steps=50, out="out"):
    return JOB.replace("MODEL", model).replace("DEVICE", device).replace("STEPS", str(steps)).replace("OUT", out)


def trainer(directory, text, plugin=PLUGIN, **env):
    with open(os.path.join(directory, "job.yaml"), "w") as f:
        f.write(text)
    if plugin:
        env["DDP_CUDA_PLUGIN"] = plugin
    env["DDP_TEST_ROUND_STEPS"] = "4"
    done = subprocess.run([f"{BIN}/ddp-trainer", "--standalone", "job.yaml"], cwd=directory, text=True,
                          capture_output=True, timeout=120, env=dict(os.environ, **env))
    return done.returncode, [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")], done.stderr


def train(directory, text, **env):
    code, reports, err = trainer(directory, text, **env)
    assert code == 0, (code, err)
    return numbers(reports)


def numbers(reports):
    return [(r["step"], *((k, repr(r[k])) for k in NUMBERS if k in r)) for r in reports]


def same_files(directory, a, b):
    for name in FILES:
        if not os.path.exists(os.path.join(newest(f"{directory}/{a}"), name)):
            continue
        assert raw(f"{directory}/{a}", name) == raw(f"{directory}/{b}", name), f"{name} differs"


JOBS = {
    "momentum": MLP + "\n  optimizer: {type: sgd, lr: 1.0e-2, momentum: 0.9, clip: 0.5}",
    "micro": MLP + "\n  accumulate: 3",
    "regression": "model: {type: linear, in: 20, out: 1}\n  data: {type: synthetic, samples: 500}",
    "dropout": GPT.replace("context: 16", "context: 16, dropout: 0.1") + ADAMW + "\n  accumulate: 2",
    "untied": GPT.replace("context: 16", "context: 16, tied: false") + ADAMW,
    "bf16": GPT + ADAMW + "\n  precision: bf16",
    "muon": GPT + MUON,
    "muon bf16": GPT + MUON + "\n  precision: bf16",
    "muon shards": MLP + MUON + WORLD,
    "shards": GPT + ADAMW + WORLD,
    "round": MLP + "\n  sync: {type: average, every: 7}",
    "outer": MLP + "\n  sync: {type: diloco, every: 7, wire: int4, warm: 4}",
    "timed": MLP + "\n  accumulate: 3\n  sync: {type: diloco, every: 1h, wire: int4}",  # of DDP_TEST_ROUND_STEPS
    "streamed": GPT + ADAMW + "\n  sync: {type: diloco, every: 8, fragments: 2, overlap: 2}",
}


def same_bits(directory):
    """Each kind of job has the same reports and the same last snapshot on this device as on the CPU."""
    write_text(directory)
    for name, model in JOBS.items():
        want = train(directory, job(model, "cpu", out=f"{name}-cpu"))
        assert len(want) >= 10 and any("digest_low" in dict(w[1:]) for w in want), (name, want)
        # 1: repeated micro-batches are recorded and replayed; 2: each recording fails
        for records in ("0", "1", "2") if "accumulate" in model else ("0", "1"):
            out = f"{name}-{records}"
            # If results must not depend on the world size, the CPU uses one thread: on processors without AVX-512 the
            # bits of oneDNN's products depend on the number of threads.
            threads = "1" if WORLD in model else "0"
            got = train(directory, job(model, "cuda", out=out), DDP_STRICT_RECORDS=records, DDP_STRICT_THREADS=threads)
            assert want == got, (name, records, [x for x in zip(want, got) if x[0] != x[1]][:2])
            same_files(directory, f"{name}-cpu", out)
    return ", ".join(JOBS)


def several_ranks(directory):
    """Sums go through host memory if the device has no collectives of its own."""
    write_text(directory)
    os.environ["DDP_CUDA_PLUGIN"] = PLUGIN
    for name, model, world, nodes in (("all", GPT + ADAMW, 2, 1), ("ring", MLP, 2, 2),
                                      ("shard", GPT + ADAMW + "\n  shard: optimizer", 3, 1), ("tree", GPT + ADAMW + WORLD, 2, 1),
                                      ("wire", MLP + "\n  sync: {type: allreduce, wire: bf16}\n  shard: optimizer", 3, 1),
                                      ("average", MLP + "\n  sync: {type: average, every: 7}", 3, 1),
                                      ("diloco", MLP + "\n  sync: {type: diloco, every: 7, wire: int8}", 3, 1),
                                      ("warm", MLP + "\n  sync: {type: diloco, every: 7, warm: 5, overlap: 1}", 2, 2)):
        seen = []
        for device in ("cpu", "cuda"):
            with World(directory, job(model, device, steps=30, out=f"{name}-{device}"), world=world, nodes=nodes) as w:
                w.run()
                seen.append([numbers(r.reports) for r in w.ranks])
        assert seen[0] == seen[1], (name, [x for x in zip(seen[0][0], seen[1][0]) if x[0] != x[1]][:2])
        same_files(directory, f"{name}-cpu", f"{name}-cuda")
        if "shard: optimizer" in model:  # each rank has its moments in its part
            assert state_bits(f"{directory}/{name}-cpu") == state_bits(f"{directory}/{name}-cuda"), name


def snapshots_go_from_one_to_the_other(directory):
    write_text(directory)
    model = GPT.replace("context: 16", "context: 16, dropout: 0.1") + ADAMW
    train(directory, job(model, "cpu", out="whole"))
    for first, then in (("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")):
        out = f"{first}-{then}"
        train(directory, job(model, first, steps=25, out=out))
        go_on = "\n  resume: continue"
        reports = train(directory, job(model + go_on, then, out=out))
        assert reports[0][0] == 25, reports[0]
        same_files(directory, "whole", out)
        begin = f"\n  init_from: {out}"
        want = train(directory, job(model + begin, "cpu", steps=5, out=f"{out}-a"))
        assert train(directory, job(model + begin, "cuda", steps=5, out=f"{out}-b")) == want


def rows_of_logits_are_rounded_up(directory):
    """With an odd number of symbols, rows of logits are padded. Products over the padded rows may add in another order, so results
    are only nearly the same."""
    write_text(directory)
    model = GPT.replace(", symbols: byte", "") + ADAMW
    for extra in ("", "\n  precision: bf16"):
        want, got = (dict(train(directory, job(model + extra, device, out=f"{device}{len(extra)}"))[-1][1:])
                     for device in ("cpu", "cuda"))
        for name in ("loss", "grad_norm", "val_loss"):
            assert abs(float(want[name]) - float(got[name])) < (2e-2 if extra else 1e-4), (name, want, got)


def bf16_is_kept(directory):
    """A device whose kept type is bf16 has nearly the same losses as one that keeps floats: with a tied or an untied head, with
    dropout, with padded rows of logits or not. Two runs give the same bits."""
    write_text(directory)
    for name, model in (("tied", GPT), ("untied", GPT.replace("context: 16", "context: 16, tied: false")),
                        ("dropout", GPT.replace("context: 16", "context: 16, dropout: 0.1")),
                        ("odd", GPT.replace(", symbols: byte", ""))):
        model += ADAMW.replace("3.0e-3", "1.0e-3") + "\n  precision: bf16\n  accumulate: 2"
        want = train(directory, job(model, "cpu", out=f"{name}-cpu"))
        got = train(directory, job(model, "cuda", out=f"{name}-16"), DDP_STRICT_KEEPS="16")
        assert got != want
        assert got == train(directory, job(model, "cuda", out=f"{name}-again"), DDP_STRICT_KEEPS="16",
                            DDP_STRICT_RECORDS="1")
        for i, (a, b) in enumerate(zip(want[1:], got[1:])):
            a, b = dict(a[1:]), dict(b[1:])
            norms = abs(float(a["grad_norm"]) / float(b["grad_norm"]) - 1) if i < 2 else 0.0  # the runs diverge later, so norms are compared only at first
            assert abs(float(a["loss"]) / float(b["loss"]) - 1) < 2e-2 and norms < 5e-2, (name, i, a, b)


def a_loss_that_is_no_number(directory):
    """A loss that is not finite is found at the end of its step: after the update, but before the step is reported or saved."""
    code, reports, err = trainer(directory, job(MLP + "\n  optimizer: {type: sgd, lr: 1.0e30}", "cuda"))
    assert code == 78 and "on rank 0: lower the learning rate or set clip" in err, (code, err)
    assert not os.path.exists(f"{directory}/out") or not [n for n in os.listdir(f"{directory}/out") if n.startswith("step")]
    assert all(r["step"] < 25 for r in reports), reports


def one_kind_of_device(directory):
    """If only one rank falls back to the CPU, the job ends before it trains, and each rank reports why."""
    os.environ.update(DDP_CUDA_PLUGIN=PLUGIN, CUDA_VISIBLE_DEVICES="GPU-1", DDP_STRICT_DECLINES="1")
    try:
        with World(directory, job(MLP, "auto"), world=3, nodes=3) as w:
            codes = w.wait()
    finally:
        del os.environ["CUDA_VISIBLE_DEVICES"], os.environ["DDP_STRICT_DECLINES"]
    says = "(strict on rank 0 (node0), rank 2 (node2); cpu on rank 1 (node1))"
    assert codes == [78] * 3 and all(says in r.err for r in w.ranks), (codes, [r.err[-300:] for r in w.ranks])
    assert "event=device_fallback" in w.ranks[1].err and "this rank has no strict device" in w.ranks[1].err, w.ranks[1].err


def one_model_of_device(directory):
    """Muon is refused if ranks have different models of GPU, because its matrix products round differently there. AdamW gives
    the same bits on both. With `sync: average` ranks differ in any case, so Muon is allowed."""
    every = "\n  sync: {type: average, every: 5}"
    for model, refused in ((MLP + MUON, True), (MLP + ADAMW, False), (MLP + MUON + every, False)):
        os.environ.update(DDP_CUDA_PLUGIN=PLUGIN, DDP_STRICT_OTHER="1")
        try:
            with World(directory, job(model, "cuda", steps=10, out="a" if refused else f"b{len(model)}"), world=2) as w:
                codes = w.wait()
        finally:
            del os.environ["DDP_STRICT_OTHER"]
        assert codes == ([78, 78] if refused else [0, 0]), (codes, [r.err[-300:] for r in w.ranks])
        says = "optimizer muon needs the same model of GPU on all ranks (strict on rank 0 (node0); strict 2 on rank 1 (node0))"
        assert all((says in r.err) == refused for r in w.ranks), [r.err[-300:] for r in w.ranks]


def which_device(directory):
    def took(device, **kw):
        """Returns the exit code, the reported device without the CPU's instruction set, and the log."""
        with tempfile.TemporaryDirectory(dir=directory) as here:
            code, _, err = trainer(here, job(MLP, device, steps=2), **kw)
        where = [w for line in err.splitlines() if "event=sizes" in line for w in line.split() if w.startswith("device=")]
        return code, [w.replace("device=cpu:", "device=cpu ").split()[0] for w in where], err
    gpu = {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    assert took("cpu", **gpu)[:2] == (0, ["device=cpu"])
    # A worker that a user starts by hand may use any GPU of the machine, and says in one line if it uses none.
    assert took("auto")[:2] == (0, ["device=strict"])
    for plugin, env, why in ((PLUGIN, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES is empty"),
                             ("/nonexistent.so", {}, "/nonexistent.so"), ("", {"DDP_CUDA_PLUGIN": ""}, "there is no NVIDIA driver")):
        if not plugin and (os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg")):
            continue
        code, where, err = took("auto", plugin=plugin, **env)
        said = [line for line in err.splitlines() if "event=device_fallback" in line]
        assert (code, where) == (0, ["device=cpu"]) and len(said) == 1 and why in said[0], (code, err)
    assert took("auto", **gpu)[:2] == (0, ["device=strict"])
    assert took("cuda")[:2] == (0, ["device=strict"])
    code, where, err = took("auto", plugin="/nonexistent.so", **gpu)
    said = [line for line in err.splitlines() if "event=device_fallback" in line]
    assert (code, where) == (0, ["device=cpu"]) and len(said) == 1 and "/nonexistent.so" in said[0], (code, err)
    code, where, err = took("cuda", plugin="/nonexistent.so")
    assert code == 78 and not where and "rank 0: device: cuda: " in err and "/nonexistent.so" in err, (code, err)


def the_plugins_versions_are_reported(directory):
    """Tests `ddp-trainer --plugin`, by which agents learn the versions of their node's GPU libraries."""
    def asked(plugin):
        done = subprocess.run([f"{BIN}/ddp-trainer", "--plugin"], env=dict(os.environ, DDP_CUDA_PLUGIN=plugin),
                              capture_output=True, text=True, timeout=60)
        return done.returncode, json.loads(done.stdout)
    code, said = asked(PLUGIN)
    assert code == 0 and said["name"] == "strict" and said["version"] == "the CPU with hidden memory", said
    assert said["nccl"] == "missing" and said["why"] == "the plugin is built without NCCL", said
    code, said = asked("/nonexistent.so")
    assert code == 1 and list(said) == ["why"] and "/nonexistent.so" in said["why"], said


sweep("strict", (the_plugins_versions_are_reported, same_bits, snapshots_go_from_one_to_the_other, rows_of_logits_are_rounded_up,
                 a_loss_that_is_no_number, one_kind_of_device, one_model_of_device, which_device), (several_ranks, bf16_is_kept))
