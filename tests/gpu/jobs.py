"""Helpers for the checks: writes job files, runs jobs in one process, reads their reports and snapshots."""
import array
import glob
import json
import os
import signal
import struct
import subprocess
import time

from suite import Failed, TimeUp

FASHION = "/usr/share/datasets/fashion-mnist"
# layers, heads and width of the sizes of GPT-2; all have a context of 1024, 50,257 tokens and a tied head
GPT2 = {"124m": (12, 12, 768), "350m": (24, 16, 1024), "774m": (36, 20, 1280), "1558m": (48, 25, 1600)}


def parameters(layers, width, context=1024, vocab=50257):
    block = 12 * width * width + 13 * width
    return vocab * width + context * width + layers * block + 2 * width


def flops_per_token(layers, width, context=1024, vocab=50257):
    """Operations of both passes: 6 for each parameter, and 6 layers * width * context for attention, whose causal half is not
    deducted."""
    return 6 * parameters(layers, width, context, vocab) + 6 * layers * width * context


HEAD = """name: {name}
nodes: 1
procs_per_node: {procs}
device: {device}
max_restarts: {restarts}
train:
"""
TAIL = """  seed: {seed}
  precision: {precision}
  log_every: {log_every}
"""


def text(lines, name="check", procs=1, device="cuda", restarts=0, seed=1, precision="fp32", log_every=1):
    values = dict(name=name, procs=procs, device=device, restarts=restarts, seed=seed, precision=precision,
                  log_every=log_every)
    return HEAD.format(**values) + "".join("  %s\n" % line for line in lines) + TAIL.format(**values)


def mlp(steps, quick, every=None, out=None):
    """The lines of an MLP on Fashion-MNIST, or on generated data if that is not installed."""
    directory = os.environ.get("DDP_FASHION_MNIST", FASHION)
    if quick or not os.path.isdir(directory):
        lines = ["model: {type: mlp, sizes: [12, 32, 3], activation: gelu}", "data: {type: synthetic, samples: 640}",
                 "global_batch: 32"]
    else:
        lines = ["model: {type: mlp, sizes: [784, 512, 10], activation: relu}", "data: {type: idx, dir: %s}" % directory,
                 "global_batch: 256"]
    return lines + ["optimizer: {type: adamw, lr: 2.0e-3, weight_decay: 0.1, clip: 1.0}",
                    "schedule: {type: cosine, warmup: 10}", "steps: %d" % steps, *snapshots(out, every)]


def gpt(path, steps, quick, every=None, out=None, dropout=0.0):
    """The lines of a small GPT on a text."""
    if quick:
        model, batch = "layers: 2, heads: 2, width: 32, context: 16", 8
    else:
        model, batch = "layers: 4, heads: 4, width: 128, context: 64", 64
    return ["model: {type: gpt, %s, dropout: %g}" % (model, dropout), "data: {type: text, path: %s, split: 0.9}" % path,
            "optimizer: {type: adamw, lr: 2.0e-3, betas: [0.9, 0.99], weight_decay: 0.1, clip: 1.0}",
            "schedule: {type: cosine, warmup: 10}", "global_batch: %d" % batch, "steps: %d" % steps,
            "eval: {every: %d, batches: 4}" % steps, *snapshots(out, every)]


def gpt2_shape(run, size):
    """Returns (layers, heads, width, context, vocab). The emulated GPU is slow, so it gets a very small model of every size."""
    return (2, 2, 32, 16, 300) if run.machine.emulated else (*GPT2[size], 1024, 50257)


def gpt2(shape, tokens, batch, steps):
    return ["model: {type: gpt, layers: %d, heads: %d, width: %d, context: %d, vocab: %d}" % tuple(shape),
            "data: {type: tokens, path: %s, split: 0.9}" % tokens,
            "optimizer: {type: adamw, lr: 3.0e-4, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}",
            "batch: %d" % batch, "steps: %d" % steps, "eval: {every: never, batches: 1}"]


def unclipped(lines):
    """Without `clip`, the bits of an update do not depend on how the norm of the gradient is added up."""
    return [line.replace(", clip: 1.0", "") for line in lines]


def snapshots(out, every):
    return ["snapshot: {dir: %s, every: %d, keep: 2}" % (out, every), "resume: continue"] if out else []


def write_text(path, size=200000):
    """Writes words in an order that can be learned in part: each word depends on the word before, or on chance."""
    words = ("the cat sat on a mat and saw two dogs run over some old green hills while rain fell from low grey clouds "
             "until night came").split()
    state, said, length = 1, [], 0
    while length < size:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        chance, at = state >> 60, (state >> 33) % len(words)
        word = words[at] if chance < 5 or not said else words[(words.index(said[-1].strip(".\n")) * 7 + 3) % len(words)]
        said.append(word + (".\n" if chance == 15 else ""))
        length += len(said[-1]) + 1
    with open(path, "w") as f:
        f.write(" ".join(said)[:size])
    return path


def write_tokens(path, count=2000000, vocab=50257):
    """Writes 16-bit tokens. A few of them are frequent, as in a text; what a model learns from them does not matter."""
    state, values = 1, array.array("H")
    for _ in range(min(count, 200000)):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        u = (state >> 11) / (1 << 53)
        values.append(min(int((u + 1e-9) ** -1.4) - 1, vocab - 1))
    with open(path, "wb") as f:
        for _ in range(max(1, count // len(values))):
            f.write(values.tobytes())
    return path


def reports_of(out):
    """Returns the reports that the trainer has printed."""
    found = []
    for line in out.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                raise Failed("ddp-trainer printed half a line: '%s'" % line[-80:])
    return found


def curve(reports, name="loss"):
    """Returns {step: value}."""
    return {r["step"]: r[name] for r in reports if name in r}


def train(run, job, name, most=None, code=0):
    """Runs one process with one rank to its end and returns its reports."""
    path = run.path(name + ".yaml", job)
    done = run.command([run.machine.program("ddp-trainer"), "--standalone", path], most=most)
    if done.code != code:
        raise Failed("%s: %s" % (name, done.ending()))
    return reports_of(done.out)


def difference(one, other):
    """Returns the largest difference between two curves, relative to their values. Both must have the same steps."""
    if not one or sorted(one) != sorted(other):
        raise Failed("the runs report different steps: %s and %s" % (sorted(one)[:5], sorted(other)[:5]))
    return max(abs(one[s] - other[s]) / max(abs(other[s]), 1e-6) for s in one)


def newest(directory):
    found = [p for p in glob.glob(os.path.join(directory, "step-*")) if os.path.exists(os.path.join(p, "COMMITTED.json"))]
    if not found:
        raise Failed("no committed snapshot in " + directory)
    return max(found, key=lambda p: int(os.path.basename(p).split("-")[1]))


def tensors(directory, name="model.safetensors"):
    """The bytes of all tensors of the newest snapshot, without the header, which names the world size."""
    with open(os.path.join(newest(directory), name), "rb") as f:
        data = f.read()
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


def moments(directory):
    """The bytes of all moments of the newest snapshot, by name. Ranks that divide the optimizer have written ranges of them, each rank
    into a file of its own."""
    at, found = newest(directory), {}
    files = glob.glob(os.path.join(at, "optimizer.safetensors")) or sorted(glob.glob(os.path.join(directory, "parts-%s-j*" % os.path.basename(at), "*")))
    for path in files:
        with open(path, "rb") as f:
            data = f.read()
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        for name, t in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, end = t["data_offsets"]
                found[name.partition("[")[0]] = found.get(name.partition("[")[0], b"") + data[begin + first:begin + end]
    return b"".join(found[name] for name in sorted(found))


def floats_apart(one, other):
    """The largest difference of two sets of floats, relative to the largest of them."""
    a, b = array.array("f"), array.array("f")
    a.frombytes(one)
    b.frombytes(other)
    if len(a) != len(b):
        raise Failed("%d and %d parameters" % (len(a), len(b)))
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


def kill_after_snapshot(run, job, name, out):
    """Starts the job and kills it once it has committed a snapshot. Returns the step of the newest snapshot, or None if the job
    ended before it could be killed."""
    path = run.path(name + ".yaml", job)
    with open(run.log, "a") as log:
        process = subprocess.Popen([run.machine.program("ddp-trainer"), "--standalone", path], stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, env=run.machine.env, cwd=run.dir, start_new_session=True)
        try:
            while process.poll() is None and run.left() > 0 and not glob.glob(os.path.join(out, "step-*", "COMMITTED.json")):
                time.sleep(0.002)  # polling interval
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
    if run.left() <= 0:
        raise TimeUp("%s: no snapshot in time" % name)
    if process.returncode not in (0, -signal.SIGKILL):
        raise Failed("%s: ddp-trainer ended with %d" % (name, process.returncode))
    return int(os.path.basename(newest(out)).split("-")[1]) if process.returncode else None
