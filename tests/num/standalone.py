#!/usr/bin/python3
"""Tests ddp-trainer without a coordinator: its output, stopping and resuming, and its messages about wrong input."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import BIN, newest, raw, sweep  # noqa: E402

JOB = """
name: t
train:
  tutorial_lines: true
  model: {type: mlp, sizes: [12, 32, 3]}
  data: {type: synthetic, samples: 640}
  optimizer: {type: adamw, lr: 3.0e-3}
  batch: 32
  epochs: 4
  snapshot: {dir: out, every: "2 epochs"}
  resume: continue
  log_every: 5
"""


def start(directory, text, *args, **kw):
    path = os.path.join(directory, "job.yaml")
    with open(path, "w") as f:
        f.write(text)
    return subprocess.Popen([f"{BIN}/ddp-trainer", "--standalone", path, *args], cwd=directory, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)


def run(directory, text, *args):
    process = start(directory, text, *args)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def lines_and_reports(directory):
    code, out, err = run(directory, JOB)
    assert code == 0, err
    assert "[GPU0] Epoch 3 | Batchsize: 32 | Steps: 20\n" in out, out
    assert "Training snapshot saved at out/step-80-g1\n" in out, out
    reports = [json.loads(line) for line in out.split("\n") if line.startswith("{")]
    last = reports[-1]
    assert last["step"] == 80 and last["steps"] == 80 and last["epoch"] == 4, last
    for key in ("loss", "val_loss", "lr", "grad_norm", "samples_per_s", "ms_per_step", "wait_ms", "memory_bytes"):
        assert key in last or key in reports[-2], (key, last)
    first = [r["loss"] for r in reports if "loss" in r][0]
    assert last["loss"] < 0.5 * first, (first, last["loss"])
    assert "event=sizes" in err and "parameters=515" in err, err  # 12 * 32 + 32 + 32 * 3 + 3
    assert "[GPU0]" not in run(directory, JOB.replace("  tutorial_lines: true\n", ""), "--set", "train.snapshot.dir=quiet")[1]


def a_rank_stays_on_the_cores_that_it_is_given(directory):
    """The rank is asked while it trains. Without `pin` it keeps what it was started with."""
    one = min(os.sched_getaffinity(0))

    def cores(*args):
        shutil.rmtree(f"{directory}/endless", ignore_errors=True)
        text = JOB.replace("epochs: 4", "epochs: 1000000").replace("out, every", "endless, every")
        process = start(directory, text, *args, preexec_fn=lambda: os.sched_setaffinity(0, {one}))
        try:
            assert process.stdout.readline()  # a report: the threads exist
            allowed = {os.sched_getaffinity(int(t)) == {one} for t in os.listdir(f"/proc/{process.pid}/task")}
        finally:
            process.send_signal(signal.SIGKILL)
            err = process.communicate(timeout=60)[1]
        assert allowed == {True}, allowed
        return re.search(r"threads=(\S+) cores=(\S+) numa_nodes=(\S+)", err).groups()

    threads, pinned, node = cores()
    assert (threads, pinned) == ("1", str(one)) and node.isdigit(), (threads, pinned, node)
    assert cores("--set", "train.pin=false") == ("1", "any", "any")
    assert cores("--set", "train.threads=3") == ("3", str(one), node)


def divided_moments_leave_memory(directory, text, parameters):
    """With eight ranks a rank has an eighth of two moments, so a GPU keeps the outputs of activation functions with less memory: 1.75
    arrays less. With `reproducible: world` the choice must not depend on the number of ranks, and parts of muon are unequal."""
    def activations(memory, job=text, *more):
        with open(f"{directory}/memory.yaml", "w") as f:
            f.write(job)
        done = subprocess.run([f"{BIN}/ddp-trainer", "--sizes", "memory.yaml", "--world", "8", "--gpu-memory", str(memory), *more], cwd=directory,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return json.loads(done.stdout)["activation_bytes"]

    array, part = 4 * parameters, ("--set", "train.shard=optimizer")
    low, high = 5 << 30, (5 << 30) + (1 << 24)
    least, most = activations(low), activations(high)
    assert least < most
    while high - low > 1024:  # whole optimizers keep them from `high` on
        middle = (low + high) // 2
        low, high = (low, middle) if activations(middle) == most else (middle, high)
    assert activations(high - array) == activations(high - 2 * array, text, *part) == least
    assert activations(high - array, text, *part) == activations(high - int(1.7 * array), text, *part) == most
    world = text.replace("  batch: 32\n", "  global_batch: 256\n") + "  reproducible: world\n  shards: 8\n"
    for other in (world, re.sub("type: adamw.*}", "type: muon}", text)):
        assert activations(high, other, *part) == most and activations(high - array, other, *part) == least, other


def sizes_are_those_of_the_run(directory):
    """What --sizes says without allocating is what the run reports."""
    gpt = JOB.replace("resume: continue", "resume: never")
    gpt = re.sub("model: .*", "model: {type: gpt, layers: 2, heads: 2, width: 16, context: 8, vocab: 300}", gpt)
    gpt = re.sub("data: .*", "data: {type: text, path: t.txt, symbols: byte}", gpt)
    gpt = re.sub("optimizer: .*", "optimizer: {type: adamw, lr: 1.0e-3}", re.sub("loss: .*\n", "", gpt))
    with open(f"{directory}/t.txt", "w") as f:
        f.write("In the beginning " * 200)
    for i, text in enumerate((JOB, gpt, gpt + "  precision: bf16\n")):
        code, out, err = run(directory, text, "--set", "train.epochs=1", "--set", "train.accumulate=2",
                             "--set", "train.threads=1", "--set", "train.snapshot.dir=out%d" % i)
        assert code == 0, err
        assert ("event=bf16_in_floats" in err) == ("bf16" in text and not re.search(r"device=cpu:avx512_(bf16|amx)", err)), err
        first = json.loads([line for line in out.split("\n") if line.startswith("{")][0])
        done = subprocess.run([f"{BIN}/ddp-trainer", "--sizes", "job.yaml", "--set", "train.accumulate=2", "--set", "train.threads=1"], cwd=directory,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        sizes = json.loads(done.stdout)
        for key in ("parameters", "parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes"):
            assert sizes[key] == first[key], (key, sizes, first)
        assert sizes["samples"] == 64 and sizes["micro_batches"] == 2 and sizes["rows"] == 32, sizes
        logged = dict(word.split("=", 1) for word in err.split("event=sizes ")[1].split() if "=" in word)
        assert sizes["batch_bytes"] == int(logged["batch_bytes"]), (sizes, logged)
        # To measure the peak of bf16, some CPUs need more than the model does.
        workspace = int(logged["workspace_bytes"])
        assert sizes["workspace_bytes"] <= workspace if "bf16" in text else sizes["workspace_bytes"] == workspace, (sizes, logged)
    # A CPU without bf16 computes it in floats, and says so.
    code, _, err = run(directory, text, "--set", "train.epochs=1", "--set", "train.isa=base", "--set", "train.snapshot.dir=out3")
    assert code == 0 and "event=bf16_in_floats" in err and "fp32 is usually faster" in err, err
    # A CPU that multiplies bf16 keeps qkv, the output of attention and nothing else as bf16. The plan follows the job's `isa`.
    plans = []
    for isa in ("base", "avx512_bf16", "avx512"):
        done = subprocess.run([f"{BIN}/ddp-trainer", "--sizes", "job.yaml", "--set", f"train.isa={isa}"], cwd=directory,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        plans.append(json.loads(done.stdout))
    logged = dict(word.split("=", 1) for word in err.split("event=sizes ")[1].split() if "=" in word)
    assert plans[0]["workspace_bytes"] <= int(logged["workspace_bytes"]), (plans[0], logged)
    layers, context, width = 2, 8, 16
    assert plans[0]["activation_bytes"] - plans[1]["activation_bytes"] == 2 * 4 * width * layers * context * plans[0]["rows"], plans
    # A CPU without bf16 products widens the factors of each product to fp32. The largest is that of the embedding and the logits of 300 symbols.
    widened = 4 * (300 * width + plans[0]["rows"] * context * (300 + width))
    assert widened <= plans[0]["workspace_bytes"] - plans[1]["workspace_bytes"] < 1.5 * widened + 65536, (plans, widened)
    assert all(plans[2][key] == plans[0][key] for key in ("activation_bytes", "workspace_bytes")), plans
    # Of eight ranks, the first has an eighth of the moments, rounded up to blocks.
    done = subprocess.run([f"{BIN}/ddp-trainer", "--sizes", "job.yaml", "--set", "train.shard=optimizer", "--world", "8"], cwd=directory,
                          capture_output=True, text=True, timeout=60)
    part = json.loads(done.stdout)
    assert 1 / 8 <= part["optimizer_bytes"] / sizes["optimizer_bytes"] < 1 / 7 and part["samples"] == 256, (part, sizes)
    saved = 4 / 5 * 2 * 2 * 12 * 16 * 16  # after four of five steps, two bytes for each element of two layers' matrices
    assert abs(sizes["gathered_bytes"] - part["gathered_bytes"] - saved) < saved / 50 and sizes["gathered_bytes"] == 4 * sizes["arrays"], (part, sizes)
    # After one step in five parameters are compared. Ranks on one node gather all at once, and each adds up its part of one bucket.
    assert abs(part["gathered_beside"] - 0.8) < 1e-9 and not part["pieces"] and len(part["buckets"]) == 1, part
    # Four nodes: a GPT of 3.2 M parameters makes three buckets, from the end of the array, and 13 pieces of parameters from its start. A bucket
    # that does not reach all four parts crosses the busiest link as a whole.
    large = ["--set", "train.precision=fp32", "--set", "train.model={type: gpt, layers: 4, heads: 4, width: 256, context: 64, vocab: 300}"]
    for shard in ("none", "optimizer"):
        done = subprocess.run([f"{BIN}/ddp-trainer", "--sizes", "job.yaml", "--world", "4", "--per-node", "1", "--set", f"train.shard={shard}", *large],
                              cwd=directory, capture_output=True, text=True, timeout=60)
        cut = json.loads(done.stdout)
        buckets, pieces = cut["buckets"], cut["pieces"]
        assert len(buckets) == 3 and sum(b["bytes"] for b in buckets) == 4 * cut["arrays"], cut
        assert 0.3 < buckets[0]["at"] < buckets[1]["at"] < 0.9 and abs(buckets[2]["at"] - 1) < 1e-9, cut
        assert [b["link_bytes"] for b in buckets] == [b["bytes"] * (1 if shard == "optimizer" else 1.5) for b in buckets], cut
        assert len(pieces) == (13 if shard == "optimizer" else 0), cut
        assert not pieces or sum(p["bytes"] for p in pieces) == 4 * (cut["arrays"] - 16) and pieces[0]["at"] == 0 < pieces[-1]["at"] < 1, cut
    done = subprocess.run([f"{BIN}/ddp-trainer", "--sizes", "job.yaml", "--gpu-memory", "80000000000"], cwd=directory,
                          capture_output=True, text=True, timeout=60)
    gpu = json.loads(done.stdout)
    divided_moments_leave_memory(directory, text, sizes["parameters"])
    assert gpu["optimizer_bytes"] == sizes["optimizer_bytes"] and gpu["workspace_bytes"] > 5 << 30, gpu


def goes_on_where_it_was(directory):
    os.makedirs(f"{directory}/a"), os.makedirs(f"{directory}/b")
    assert run(f"{directory}/a", JOB)[0] == 0
    code, _, err = run(f"{directory}/b", JOB, "--set", "train.epochs=2")
    assert code == 0 and "event=init seed=" in err, err
    code, out, err = run(f"{directory}/b", JOB)
    assert "event=init" not in err, err  # parameters that are loaded must not be initialised first
    assert code == 0 and "Resuming training from snapshot at Epoch 2\n" in out, (out, err)
    assert "[GPU0] Epoch 1 " not in out and "[GPU0] Epoch 2 " in out, out
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert raw(f"{directory}/a/out", name) == raw(f"{directory}/b/out", name), name
    code, out, err = run(f"{directory}/b", JOB)  # the run is complete: nothing is trained, but the model is evaluated again
    end = err.split("event=finished ")[1].split("\n")[0]
    assert code == 0 and " val_loss=" in end and "nan" not in end and " loss=" not in end, err


def interrupt_keeps_a_snapshot(directory):
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = start(directory, JOB.replace("epochs: 4", "epochs: 10000000"))
        for line in process.stdout:
            if line.startswith("{") and json.loads(line)["step"] > 100:
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == code, (process.returncode, err)
        assert "event=stopped" in err, err
        step = int(os.path.basename(newest(f"{directory}/out"))[5:].split("-")[0])
        assert f"step={step} " in err.split("event=stopped")[1], (step, err)


def steps_take_the_time_that_a_test_sets(directory):
    """A step that would take an hour ends when the process is asked to stop."""
    process = start(directory, JOB.replace("epochs: 4", "epochs: 10000000").replace("log_every: 5", "log_every: 1"),
                    env=dict(os.environ, DDP_TEST_STEP_MS="3600000"))
    for line in process.stdout:
        if line.startswith("{") and json.loads(line)["step"] == 1:
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "event=stopped step=2 " in err, (process.returncode, err)


def wrong_input(directory):
    cuda = JOB.replace("name: t", "name: t\ndevice: cuda")
    idx = JOB.replace("{type: synthetic, samples: 640}", "{type: idx, dir: /nonexistent}")
    for text, code, says in (
            (JOB.replace("batch", "bach"), 2, "job.yaml:8:3: "),
            (JOB.replace("batch: 32", "batch: many"), 2, "job.yaml:8:10: "),
            ("name: t\ncommand: [true]\n", 2, "expected a job file with 'train'"),
            (cuda, 78, "device: cuda"),
            (idx, 78, "/nonexistent/train-images-idx3-ubyte: no such file"),
            (JOB.replace("dir: out", "dir: /proc/none"), 78, "snapshot.dir: make directory /proc/none")):
        got, out, err = run(directory, text)
        assert got == code and says in err, (got, code, says, err)
    with open(f"{directory}/rank.yaml", "w") as f:
        f.write(idx)
    place = dict(DDP_JOB_ID="1", DDP_GENERATION="1", DDP_SPAWN="6", RANK="5", WORLD_SIZE="6", LOCAL_RANK="1",
                 LOCAL_WORLD_SIZE="2", GROUP_RANK="2", DDP_JOB_FILE=f"{directory}/rank.yaml")
    done = subprocess.run([f"{BIN}/ddp-trainer"], env={**os.environ, **place}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78 and "ddp-trainer: rank 5: " in done.stderr, done  # the rank has not joined yet
    for args, says in (([], "DDP_JOB_FILE is not set"), (["--what"], "unknown option '--what'"),
                       (["--standalone"], "--standalone needs a job file"), (["job.yaml"], "needs --standalone"),
                       (["--standalone", "job.yaml", "--seed", "3"], "need --generate"),
                       (["--plugin", "--generate", "out"], "only one of"), (["--sizes"], "--sizes needs a job file"),
                       (["--world", "3"], "need --sizes")):
        done = subprocess.run([f"{BIN}/ddp-trainer", *args], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and says in done.stderr, done
    for args, says in ((["--help"], "usage: ddp-trainer --standalone JOB.yaml"), (["--version"], "ddp-trainer ")):
        done = subprocess.run([f"{BIN}/ddp-trainer", *args], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.startswith(says) and not done.stderr, done
    done = subprocess.run([f"{BIN}/ddp-trainer", "--standalone", "/nonexistent.yaml"], capture_output=True, text=True)
    assert done.returncode == 2 and "/nonexistent.yaml" in done.stderr, done


def out_of_memory_names_what(directory):
    code, _, err = run(directory, JOB.replace("32, 3]", "4194304, 4194304, 3]").replace("batch: 32", "batch: 1"))
    assert code == 1 and "out of memory" in err and "optimizer state (" in err, (code, err)


sweep("standalone", [lines_and_reports, a_rank_stays_on_the_cores_that_it_is_given, sizes_are_those_of_the_run, goes_on_where_it_was, interrupt_keeps_a_snapshot, steps_take_the_time_that_a_test_sets, wrong_input,
                     out_of_memory_names_what])
