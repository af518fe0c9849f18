"""Measures GPT-2 at four sizes on one GPU in bf16: tokens per second, and their share of the machine's rate of matrix products.
stage_peers.py measures PyTorch and llm.c.

Utilisation counts 6 parameters + 6 layers x width x context floating-point operations per token, relative to the vendor's dense
bf16 rate of the GPU and to the rate that the trainer measures with cuBLASLt on the machine, on random numbers. A figure is the
median of the reports after the first third of the steps."""
import re
import statistics

import jobs
from stage_correctness import run_checker
from suite import Failed, Skipped, check

VENDOR = (("H200", 989e12), ("H100", 989e12), ("GH200", 989e12), ("A100", 312e12), ("B200", 2250e12))  # dense bf16
BATCH = {"124m": 64, "350m": 32, "774m": 24, "1558m": 16}  # sequences in a step
OUT_OF_MEMORY = re.compile("out of (GPU )?memory|bytes of GPU memory")  # the message of ddp-trainer, and that of PyTorch
# tokens/s on an H200, and the ratio to PyTorch
AIM = {"124m": (565e3, 1.15), "350m": (205e3, 1.05), "774m": (100e3, 1.05), "1558m": (55e3, 1.05)}


def vendor_rate(machine):
    name = machine.gpus[0]["name"] if machine.gpus else ""
    return next((rate for word, rate in VENDOR if word in name), None)


def need_gpu(run):
    if not run.machine.emulated and not run.machine.gpus:
        raise Skipped("no GPU")


def batch_of(run, size):
    return 4 if run.machine.emulated else BATCH[size]


def train_gpt2(run, size, tokens, batch, steps, **env):
    """Trains some steps of GPT-2, with algorithms of products chosen by time (DDP_CUDA_TUNE). A batch that does not fit is halved.
    Returns the reports, the batch that fits, and what the trainer's log says of algorithms and attention."""
    shape = jobs.gpt2_shape(run, size)
    env, untuned = dict(run.machine.env, DDP_CUDA_TUNE="1", **env), ""
    while True:
        path = run.path("%s.yaml" % size, jobs.text(jobs.gpt2(shape, tokens, batch, steps), precision="bf16",
                                                    log_every=max(1, steps // 12)))
        done = run.command([run.machine.program("ddp-trainer"), "--standalone", path], env=env)
        if done.code == 0:
            said = re.findall(r"event=((?:algorithms_\w+|attention) .*)", done.err)
            return jobs.reports_of(done.out), batch, untuned + "; ".join(said)
        if OUT_OF_MEMORY.search(done.err + done.out) and batch > 1:
            batch //= 2
        elif env.pop("DDP_CUDA_TUNE", None):  # A speed without it is better than no speed.
            untuned = "DDP_CUDA_TUNE=1 failed, so it is not set: %s; " % done.ending()
        else:
            raise Failed(untuned + done.ending())


def steps_of(run, size):
    return 12 if run.quick else 60 if size in ("124m", "350m") else 36


def measure_size(run, size):
    need_gpu(run)
    layers, _, width, context, vocab = jobs.gpt2_shape(run, size)
    tokens = jobs.write_tokens(run.path("tokens.bin"), vocab=vocab)
    steps = steps_of(run, size)
    reports, batch, said = train_gpt2(run, size, tokens, batch_of(run, size), steps)
    late = [r for r in reports if r["step"] > steps // 3 and "tokens_per_s" in r]
    if not late:
        raise Failed("no report of speed")
    rate, last = statistics.median(r["tokens_per_s"] for r in late), late[-1]
    flops = jobs.flops_per_token(layers, width, context, vocab) * rate
    vendor = vendor_rate(run.machine)
    measured = last["gflops"] * 1e9 / last["peak_share"] if last.get("peak_share") else None
    return {"tokens_per_s": rate, "batch": batch, "tflops": flops / 1e12, "memory_bytes": reports[0].get("bytes"),
            "share_of_vendor": flops / vendor if vendor else None, "matrix_tflops": measured / 1e12 if measured else None,
            "share_of_matrix_rate": flops / measured if measured else None, "aim_tokens_per_s": AIM[size][0],
            "log": said or "nothing about algorithms or attention"}


@check("speed", "gpt2-124m", "GPT-2 124M, context 1024, bf16", least=25, most=120)
def gpt2_124m(run):
    return measure_size(run, "124m")


@check("speed", "gpt2-350m", "GPT-2 350M, context 1024, bf16", least=30, most=120)
def gpt2_350m(run):
    return measure_size(run, "350m")


@check("speed", "gpt2-774m", "GPT-2 774M, context 1024, bf16", least=35, most=120)
def gpt2_774m(run):
    return measure_size(run, "774m")


@check("speed", "gpt2-1558m", "GPT-2 1.5B, context 1024, bf16", least=45, most=150)
def gpt2_1558m(run):
    return measure_size(run, "1558m")


@check("speed", "attention-speed", "attention alone, by cuDNN and by the kernels of our own", least=15, most=60)
def attention_speed(run):
    """The figures are TFLOP/s of the forward and the backward pass, by shape and way; the log has the whole table."""
    need_gpu(run)
    done = run_checker(run, "gpu_attention_bench", None)
    if done.code:
        raise Failed(done.ending())
    found = {}
    row = r"^ *(\d+) +(\d+) +(\d+) +(\d+)  p ([0-9.]+)  (.+?) +[0-9.]+ ms +([0-9.]+) +[0-9.]+ ms +([0-9.]+)$"
    for rows, heads, context, size, dropout, way, forward, backward in re.findall(row, done.out, re.M):
        shape = "%s x %s heads x %s x %s%s" % (rows, heads, context, size, "" if float(dropout) == 0 else ", dropout " + dropout)
        found.setdefault(shape, {})[way] = [float(forward), float(backward)]
    if not found:
        raise Failed("gpu_attention_bench printed no row: '%s'" % done.last_words())
    return {"library": done.out.splitlines()[0], "tflops": found}
