"""Measures PyTorch, and llm.c if it is given, on what the stage speed measures, with the same batch. The sizes share the time that
the call has left. First PyTorch compiles each block by itself, which takes the same time for any number of layers. The other
ways to compile are measured if there is time."""
import json
import os
import re
import statistics
import time

import jobs
from stage_speed import AIM, OUT_OF_MEMORY, batch_of, need_gpu, steps_of
from suite import Failed, LeftOut, Skipped, TimeUp, check

HERE = os.path.dirname(os.path.abspath(__file__))
# How PyTorch is run, in this order; BEST stands for the attention of the fastest so far.
WAYS = (("cudnn", "block"), ("flash", "block"), ("BEST", "model"), ("BEST", "graphs"))


def measure_torch(run, python, shape, batch, steps, tokens, attention, how, most):
    """Runs bench_torch.py on the same GPU and returns its figures. A batch that does not fit is halved."""
    env = dict(os.environ, CUDA_VISIBLE_DEVICES=run.machine.env["CUDA_VISIBLE_DEVICES"])
    end = time.monotonic() + most
    while True:
        try:
            done = run.command([python, os.path.join(HERE, "bench_torch.py"), *shape, batch, steps, tokens, "--attention", attention,
                                "--compile", how], env=env, most=end - time.monotonic())
        except TimeUp as e:
            return {"why_not": str(e), "time_up": True}
        if done.code == 0:
            try:
                return dict(json.loads(done.out.strip().splitlines()[-1]), batch=batch)
            except (ValueError, IndexError):
                return {"why_not": "half a line: '%s'" % done.out[-80:]}
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


def fastest(found):
    return max((p for name, p in found.items() if name.startswith("torch") and "tokens_per_s" in p),
               key=lambda p: p["tokens_per_s"], default=None)


def share_of_time(run):
    """Returns the seconds for this size: the call's rest, divided by the sizes that are still to come."""
    others = len([name for name in run.machine.waiting if name.startswith("peers-")])
    return min(run.left(), (run.machine.deadline - time.monotonic()) / (others + 1))


def measure_all(run, size, tokens, batch, steps):
    """Returns {name: figures} of all ways that there was time for."""
    python, version = run.machine.torch()
    if not python and not run.machine.llmc:
        raise Skipped(version)
    shape, found = jobs.gpt2_shape(run, size), {} if python else {"torch": {"why_not": version}}
    end = time.monotonic() + share_of_time(run)
    if run.machine.llmc:
        found["llm.c"] = measure_llmc(run, size, tokens, batch, steps)
    ways = (("cudnn", "nothing"),) if run.machine.emulated else WAYS
    for i, (attention, how) in enumerate(ways if python else ()):
        best = fastest(found)
        if attention == "BEST" and not best:
            continue
        attention = best["attention"] if attention == "BEST" else attention
        left = end - time.monotonic()
        name = "torch-%s-%s" % (attention, how)
        if i and left < 30:
            found[name] = {"why_not": "left out: %.0f s were left for this size" % max(0, left)}
        else:
            found[name] = measure_torch(run, python, shape, batch, steps, tokens, attention, how, left)
    return found


def measure_peers(run, size):
    need_gpu(run)
    tokens = jobs.write_tokens(run.path("tokens.bin"), vocab=jobs.gpt2_shape(run, size)[4])
    ours = run.machine.earlier("gpt2-" + size)
    found = measure_all(run, size, tokens, ours.get("batch") or batch_of(run, size), steps_of(run, size))
    best = fastest(found)
    figures = {"peers": found}
    if best:
        how = "%s attention, compiled: %s, PyTorch %s, batch %d" % (best["attention"], best["compiled"], best["torch"], best["batch"])
        figures.update(torch_best=best["tokens_per_s"], torch_how=how, aim_times_torch=AIM[size][1])
        if ours.get("tokens_per_s"):
            figures["times_torch"] = ours["tokens_per_s"] / best["tokens_per_s"]
    elif not any("tokens_per_s" in p for p in found.values()):
        if any(p.get("time_up") for p in found.values()):
            raise LeftOut("PyTorch did not start and compile in this size's share of the time: " + next(
                p["why_not"] for p in found.values() if p.get("time_up")))
        raise Failed("nothing could be measured: " + "; ".join("%s: %s" % (n, p["why_not"]) for n, p in found.items()), figures)
    return figures


@check("peers", "peers-124m", "PyTorch and llm.c: GPT-2 124M", least=45, most=300)
def peers_124m(run):
    return measure_peers(run, "124m")


@check("peers", "peers-350m", "PyTorch and llm.c: GPT-2 350M", least=45, most=300)
def peers_350m(run):
    return measure_peers(run, "350m")


@check("peers", "peers-774m", "PyTorch and llm.c: GPT-2 774M", least=45, most=300)
def peers_774m(run):
    return measure_peers(run, "774m")


@check("peers", "peers-1558m", "PyTorch and llm.c: GPT-2 1.5B", least=45, most=300)
def peers_1558m(run):
    return measure_peers(run, "1558m")
