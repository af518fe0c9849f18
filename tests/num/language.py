#!/usr/bin/python3
"""Tests language models in the trainer: text and tokens, the same validation loss on every layout, reports and announced sizes,
and data that changed or is invalid."""
import math
import os
import random
import resource
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from language_text import write_text  # noqa: E402
from world import World, sweep  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: gpt, layers: 2, heads: 2, width: 32, context: 16 MODEL}
  data: {type: text, path: input.txt DATA}
  optimizer: {type: adamw, lr: 3.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}
  schedule: {type: cosine, warmup: 10}
  BATCH
  steps: STEPS
  eval: {every: 50, batches: all}
  snapshot: {dir: out, every: 50}
  log_every: 10
  EXTRA
"""


def job(model="", data="", batch="global_batch: 16", steps=100, extra=""):
    return JOB.replace("MODEL", model).replace("DATA", data).replace("BATCH", batch).replace("STEPS", str(steps)) \
        .replace("EXTRA", extra)


def learns_and_reports(directory):
    text = write_text(directory)
    with World(directory, job(), world=2) as w:
        w.run()
        reports = w.ranks[0].reports
        err = w.ranks[0].err
    symbols = len(set(text))
    first = [r["val_loss"] for r in reports if "val_loss" in r][0]
    last = w.last("val_loss")
    assert last < 1.5 < first + 0.5 < math.log(symbols) + 0.5, (first, last)
    assert abs(w.last("bits_per_char") - last / math.log(2)) < 1e-9
    assert f"bits_per_char={last / math.log(2):.6g}"[:18] in err, err
    r = [r for r in reports if r["step"] == 60][0]
    for name in ("loss", "lr", "grad_norm", "tokens_per_s", "gflops", "peak_share", "exposed", "wait_ms", "ms_per_step"):
        assert r.get(name, -1) >= 0, (name, r)
    assert "val_acc" not in reports[-1]
    assert r["tokens"] == 60 * 16 * 16
    assert r["exposed"] <= 1 and r["peak_share"] < 1.5
    # operations per token: 6 for each parameter of a matrix product, and some for attention
    flops = r["gflops"] * 1e9 / r["tokens_per_s"]
    parameters = reports[0]["parameters"]
    assert 4 * parameters < flops < 8 * parameters, (flops, parameters)
    assert reports[0]["bytes"] > reports[0]["parameter_bytes"] + reports[0]["activation_bytes"]
    return f"val {first:.3f} -> {last:.3f}"


def validation_is_the_same_on_every_layout(directory):
    """Evaluates the parameters of step 0 on the whole split: every window counts once, whatever the number of ranks."""
    write_text(directory)
    seen = []
    for world, nodes, batch in ((1, 1, 16), (2, 1, 16), (3, 1, 9), (4, 2, 24), (5, 1, 50)):
        text = job(steps=1, batch=f"global_batch: {batch}").replace("lr: 3.0e-3", "lr: 1.0e-30").replace(
            "dir: out", f"dir: out{world}")
        with World(directory, text, world=world, nodes=nodes) as w:
            w.run()
            seen.append(w.last("val_loss"))
    assert max(seen) - min(seen) < 2e-6 * seen[0], seen
    return f"spread {max(seen) - min(seen):.1e}"


def averaging_learns(directory):
    """With `sync: average`, where ranks average only at the end of a round, the model also learns."""
    write_text(directory)
    text = job(extra="sync: {type: average, every: 10}", batch="batch: 8")
    with World(directory, text, world=2, nodes=2) as w:
        w.run()
        assert w.last("val_loss") < 1.5, w.last("val_loss")
        assert [r["step"] for r in w.ranks[0].reports if "digest_low" in r] == list(range(0, 101, 10))


def memory_equals_the_announced_sizes(directory):
    """The process's peak memory is within 10 % of the sum in the log. The model is large compared with the memory that oneDNN and
    malloc need for any model, about 16 MB."""
    write_text(directory)
    text = job(steps=6, batch="batch: 4").replace("width: 32", "width: 320").replace("layers: 2", "layers: 6") \
        .replace("context: 16", "context: 128").replace("every: 50", "every: 2") \
        .replace("log_every: 10", "log_every: 1")
    notes = []
    for world in (1, 2):
        with World(directory, text.replace("dir: out", f"dir: out{world}"), world=world) as w:
            w.run()
            peaks = [max(r["memory_bytes"] for r in rank.reports) for rank in w.ranks]
            for rank in range(world):
                said = int(w.ranks[rank].err.split(" sum_bytes=")[1].split()[0])
                assert abs(peaks[rank] - said) < 0.1 * said, (world, rank, peaks[rank], said, w.ranks[rank].err)
                notes.append(f"{peaks[rank] / said:.3f}")
    return "of the announced: " + ", ".join(notes)


def changed_data_and_order_are_refused(directory):
    text = write_text(directory)
    committed = {}
    with World(directory, job(steps=50), snapshots=committed) as w:
        w.run()
    with open(f"{directory}/input.txt", "w") as f:
        f.write(text[1:] + text[0])  # the same characters in another order
    with World(directory, job(steps=100), world=2, snapshots=committed, generation=2) as w:
        assert w.wait() == [78, 78]
        for r in w.ranks:
            assert "the data is not the data of the snapshot of step 50 (20000 bytes then, 20000 now, changed)" \
                in r.err, r.err
    with open(f"{directory}/input.txt", "w") as f:
        f.write(text)
    for other, says in ((job(steps=100, extra="seed: 6"), "has seed 1, but the job file has seed 6"),
                        (job(steps=100, data=", split: 0.8"), "training samples, but the data now has"),
                        (job(steps=100, data=", shuffle: false"), "another train.data.shuffle: set it to true")):
        with World(directory, other, snapshots=committed, generation=2) as w:
            assert w.wait() == [78] and says in w.ranks[0].err, (says, w.ranks[0].err)
    with World(directory, job(steps=100), world=2, snapshots=committed, generation=3) as w:
        w.run()
        assert min(r["step"] for r in w.ranks[0].reports) == 50


def ranks_with_different_copies_do_not_train(directory):
    """Two nodes have a copy each. With one that is shorter, or of other characters, both ranks say so before the first step."""
    text = write_text(f"{directory}/node0")
    os.makedirs(f"{directory}/node1")
    for other, says in ((text[:-3000], "rank 1 (node1) has 17000 bytes, rank 0 (node0) has 20000"),
                        (text.replace(text[0], "#"), "rank 1 (node1) and rank 0 (node0) both have 20000 bytes, but their contents differ")):
        with open(f"{directory}/node1/input.txt", "w") as f:
            f.write(other)
        with World(directory, job(), world=2, nodes=2, own_dirs=True) as w:
            assert w.wait() == [78, 78], [r.err for r in w.ranks]
            for r in w.ranks:
                assert "ranks read different data (1 of 2 unlike rank 0): " in r.err and says in r.err, r.err
                assert not any("loss" in report for report in r.reports), r.reports
    with open(f"{directory}/node1/input.txt", "w") as f:
        f.write(text)
    with World(directory, job(steps=5), world=2, nodes=2, own_dirs=True) as w:
        w.run()


def changed_images_are_refused(directory):
    """The four files are written again in place, with as many samples, between two generations."""
    pick = random.Random(3)

    def write_images():
        for split, count in (("train", 60), ("t10k", 20)):
            for name, shape, most in (("images-idx3", (count, 2, 2), 255), ("labels-idx1", (count,), 2)):
                with open(f"{directory}/{split}-{name}-ubyte", "wb") as f:
                    f.write(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape))
                    f.write(bytes([most] + [pick.randrange(most + 1) for _ in range(math.prod(shape) - 1)]))

    text = ("name: t\ndevice: cpu\ntrain:\n  model: {type: linear, in: 4, out: 3}\n  data: {type: idx, dir: .}\n"
            "  optimizer: {type: sgd, lr: 0.01}\n  batch: 5\n  steps: STEPS\n  snapshot: {dir: out, every: 10}\n")
    committed = {}
    write_images()
    for steps, generation in ((10, 1), (20, 2)):
        with World(directory, text.replace("STEPS", str(steps)), snapshots=committed, generation=generation) as w:
            w.run()
    write_images()
    with World(directory, text.replace("STEPS", "30"), snapshots=committed, generation=3) as w:
        assert w.wait() == [78], w.ranks[0].err
        assert "the data is not the data of the snapshot of step 20 (400 bytes then, 400 now, changed)" in w.ranks[0].err, \
            w.ranks[0].err


def other_symbols_are_no_beginning(directory):
    """A model of bytes and a model of 256 characters have the same shapes, but their symbols have different meanings."""
    write_text(directory)
    with World(directory, job(model=", vocab: 256", steps=1)) as w:
        w.run()
    text = job(model=", vocab: 256", data=", symbols: byte", steps=1, extra=f"init_from: {directory}/out")
    with World(directory, text.replace("dir: out", "dir: out2")) as w:
        assert w.wait() == [78]
        assert "was trained on other symbols: set train.data.symbols to character" in w.ranks[0].err, w.ranks[0].err


def tokens(directory):
    """Both formats of .bin files give the same training. The message names a token that is too large."""
    pick = random.Random(5)
    numbers = [0]
    for _ in range(4000):
        numbers.append((numbers[-1] * 3 + pick.randrange(2)) % 50)
    os.makedirs(directory, exist_ok=True)
    bare = struct.pack(f"<{len(numbers)}H", *numbers)
    with open(f"{directory}/bare.bin", "wb") as f:
        f.write(bare)
    with open(f"{directory}/headed.bin", "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, len(numbers), *[0] * 253) + bare)
    ends = []
    for name in ("bare", "headed"):
        text = job(model=", vocab: 50").replace("type: text, path: input.txt", f"type: tokens, path: {name}.bin") \
            .replace("dir: out", f"dir: {name}")
        with World(directory, text, world=2, nodes=2) as w:
            w.run()
            ends.append((w.last("val_loss"), w.last("digest_low")))
            assert not any("bits_per_char" in r for r in w.ranks[0].reports)
    assert ends[0] == ends[1], ends
    assert ends[0][0] < 2.5, ends  # without learning, the loss would be log 50 = 3.9
    with open(f"{directory}/bare.bin", "r+b") as f:
        f.seek(2 * 1234)
        f.write(struct.pack("<H", 50))
    text = job(model=", vocab: 50", steps=400).replace("type: text, path: input.txt", "type: tokens, path: bare.bin") \
        .replace("dir: out", "dir: bad")
    with World(directory, text) as w:
        assert w.wait() == [78]
        assert "bare.bin: token 1234 is 50, but model.vocab is 50" in w.ranks[0].err, w.ranks[0].err


def a_file_that_becomes_shorter(directory):
    """If the file becomes shorter during training, the job ends with an error that names the file, not by a signal."""
    write_text(directory)
    with World(directory, job(steps=1000000, extra="resume: never"), world=2) as w:
        w.until_step(20)
        os.truncate(f"{directory}/input.txt", 100)
        codes = w.wait()
        assert 78 in codes and set(codes) <= {75, 78}, codes
        assert any("input.txt: has no byte " in r.err for r in w.ranks), [r.err for r in w.ranks]


def larger_than_memory(directory):
    """Training on a sparse file of 64 GiB works with a limit of 2 GiB of heap: nothing copies the file."""
    os.makedirs(directory, exist_ok=True)
    with open(f"{directory}/input.txt", "wb") as f:
        f.truncate(64 << 30)
    text = job(data=", symbols: byte, split: 0.999999", steps=20).replace("batches: all", "batches: 2")
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, limits[1]))
    try:
        with World(directory, text, world=2) as w:
            w.run()
            assert w.last("step") == 20
            assert w.last("memory_bytes") < 1 << 30
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


sweep("language", [learns_and_reports, validation_is_the_same_on_every_layout, averaging_learns,
                   changed_data_and_order_are_refused, ranks_with_different_copies_do_not_train, changed_images_are_refused,
                   other_symbols_are_no_beginning, tokens, a_file_that_becomes_shorter, larger_than_memory],
      [memory_equals_the_announced_sizes])
