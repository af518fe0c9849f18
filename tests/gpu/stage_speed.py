"""Measures GPT-2 at four sizes on one GPU in bf16: tokens per second, and their share of the machine's rate of matrix products,
compared with PyTorch, and with llm.c if it is given, in the same run.

Utilisation counts 6 parameters + 6 layers x width x context floating-point operations per token, relative to the vendor's dense
bf16 rate of the GPU and to the rate that the trainer measures with cuBLASLt on the machine. A figure is the median
of the reports after the first third of the steps."""
import json
import os
import re
import statistics

import jobs
from suite import Failed, Skipped, check

HERE = os.path.dirname(os.path.abspath(__file__))
VENDOR = (("H200", 989e12), ("H100", 989e12), ("GH200", 989e12), ("A100", 312e12), ("B200", 2250e12))  # dense bf16
BATCH = {"124m": 64, "350m": 32, "774m": 24, "1558m": 16}  # sequences in a step
OUT_OF_MEMORY = re.compile("out of (GPU )?memory|bytes of GPU memory")  # the message of ddp-trainer, and that of PyTorch
# tokens/s on an H200, and the ratio to PyTorch
AIM = {"124m": (530e3, 1.15), "350m": (200e3, 1.08), "774m": (96e3, 1.05), "1558m": (51e3, 1.0)}


def vendor_rate(machine):
    name = machine.gpus[0]["name"] if machine.gpus else ""
    return next((rate for word, rate in VENDOR if word in name), None)


def need_gpu(run):
    if run.machine.emulated:
        raise Skipped("the emulator's speed says nothing")
    if not run.machine.gpus:
        raise Skipped("no GPU")


def measure_ddp(run, size, tokens, batch, steps):
    """Returns the median tokens/s and the last report. A batch that does not fit is halved."""
    while True:
        path = run.path("%s.yaml" % size, jobs.text(jobs.gpt2(size, tokens, batch, steps), precision="bf16",
                                                    log_every=max(1, steps // 12)))
        done = run.command([run.machine.program("ddp-trainer"), "--standalone", path])
        if done.code == 0:
            break
        if not OUT_OF_MEMORY.search(done.err + done.out) or batch == 1:
            raise Failed("ddp-trainer ended with %d: %s" % (done.code, done.last_words()))
        batch //= 2
    reports = jobs.reports_of(done.out)
    late = [r for r in reports if r["step"] > steps // 3 and "tokens_per_s" in r]
    if not late:
        raise Failed("no report of speed")
    return statistics.median(r["tokens_per_s"] for r in late), dict(late[-1], bytes=reports[0].get("bytes")), batch


def measure_peers(run, size, tokens, batch, steps):
    """Measures PyTorch with each attention backend that works, the faster one also with CUDA graphs, and llm.c. Returns
    {name: figures}."""
    shape = (*jobs.GPT2[size], 1024, 50257)
    found = {}
    python, version = run.machine.torch()
    if not python:
        found["torch"] = {"why_not": version}
    for rest, attention in ((3, "cudnn"), (2, "flash")) if python else ():
        found["torch-" + attention] = measure_torch(run, python, shape, batch, steps, tokens, rest, "--attention", attention)
    works = [f for f in found.values() if "tokens_per_s" in f]
    if works:
        best = max(works, key=lambda f: f["tokens_per_s"])["attention"]
        found["torch-%s-graphs" % best] = measure_torch(run, python, shape, batch, steps, tokens, 1, "--attention", best, "--mode",
                                                "reduce-overhead")
    if run.machine.llmc:
        found["llm.c"] = measure_llmc(run, size, tokens, batch, steps)
    return found


def measure_torch(run, python, shape, batch, steps, tokens, rest, *how):
    """Runs bench_torch.py on the same GPU and returns its figures. A batch that does not fit is halved. rest: how many
    measurements of PyTorch, with this one, share the time that is left."""
    end = run.left() - run.left() / (rest + bool(run.machine.llmc))
    env = dict(os.environ, CUDA_VISIBLE_DEVICES=run.machine.env["CUDA_VISIBLE_DEVICES"])
    while True:
        try:
            done = run.command([python, os.path.join(HERE, "bench_torch.py"), *shape, batch, steps, tokens, *how], env=env,
                               most=run.left() - end)
        except Failed as e:
            return {"why_not": str(e)}
        if done.code == 0:
            return dict(json.loads(done.out.strip().splitlines()[-1]), batch=batch)
        if not OUT_OF_MEMORY.search(done.err) or batch == 1:
            return {"why_not": done.last_words()}
        batch //= 2


def measure_llmc(run, size, tokens, batch, steps):
    """Measures llm.c in a checkout that is built already, or that make can build, with its own initial parameters."""
    program = os.path.join(run.machine.llmc, "train_gpt2cu")
    try:
        if not os.access(program, os.X_OK):
            env = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/local/cuda/bin")
            done = run.command(["make", "-C", run.machine.llmc, "train_gpt2cu", "NO_MULTI_GPU=1"], env=env)
            if done.code:
                return {"why_not": "make: " + done.last_words()}
        data = run.path("llmc.bin")
        with open(tokens, "rb") as source, open(data, "wb") as f:
            words = source.read()
            header = [20240520, 1, len(words) // 2] + [0] * 253
            f.write(b"".join(v.to_bytes(4, "little") for v in header) + words)
        done = run.command([program, "-i", data, "-j", data, "-e", "d%d" % jobs.GPT2[size][0], "-b", batch, "-t", 1024,
                            "-d", batch * 1024, "-x", steps, "-v", 0, "-s", 0, "-h", 0], env=run.machine.env)
    except Failed as e:
        return {"why_not": str(e)}
    rates = [float(m) for m in re.findall(r"([0-9.]+) tok/s", done.out)]
    if done.code or not rates:
        return {"why_not": done.last_words()}
    return {"tokens_per_s": statistics.median(rates[len(rates) // 3:])}


def measure_size(run, size):
    need_gpu(run)
    layers, _, width = jobs.GPT2[size]
    tokens = jobs.write_tokens(run.path("tokens.bin"))
    steps = 12 if run.quick else 60 if size in ("124m", "350m") else 36
    rate, last, batch = measure_ddp(run, size, tokens, BATCH[size], steps)
    flops = jobs.flops_per_token(layers, width) * rate
    vendor = vendor_rate(run.machine)
    measured = last["gflops"] * 1e9 / last["peak_share"] if last.get("peak_share") else None
    found = {"tokens_per_s": rate, "batch": batch, "tflops": flops / 1e12, "memory_bytes": last.get("bytes"),
             "share_of_vendor": flops / vendor if vendor else None, "matrix_tflops": measured / 1e12 if measured else None,
             "share_of_matrix_rate": flops / measured if measured else None, "aim_tokens_per_s": AIM[size][0]}
    others = measure_peers(run, size, tokens, batch, steps)
    best = max((p["tokens_per_s"] for name, p in others.items() if name.startswith("torch") and "tokens_per_s" in p),
               default=None)
    if best:
        found.update(torch_best=best, times_torch=rate / best, aim_times_torch=AIM[size][1])
    found["peers"] = others
    return found


@check("speed", "gpt2-124m", "GPT-2 124M, context 1024, bf16", least=60, most=420)
def gpt2_124m(run):
    return measure_size(run, "124m")


@check("speed", "gpt2-350m", "GPT-2 350M, context 1024, bf16", least=90, most=420)
def gpt2_350m(run):
    return measure_size(run, "350m")


@check("speed", "gpt2-774m", "GPT-2 774M, context 1024, bf16", least=120, most=420)
def gpt2_774m(run):
    return measure_size(run, "774m")


@check("speed", "gpt2-1558m", "GPT-2 1.5B, context 1024, bf16", least=150, most=420)
def gpt2_1558m(run):
    return measure_size(run, "1558m")
