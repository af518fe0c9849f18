"""Checks `shard: optimizer` with several ranks on one GPU: the run is that of whole optimizers, a killed rank does not change its result,
and the memory that it saves is what was computed."""
import os
import re
import signal

import jobs
from stage_nccl import gpt_lines, points_of, start_cluster, train_together, wait_for_snapshot, wait_succeeded
from suite import Failed, check

MOST = {2: 1e-6, 4: 1e-5}  # largest relative difference of losses, by ranks: the sum of two ranks has one order only
SLACK_MIB = 64  # of memory: the driver gives it out in blocks


def lines_of(run, shard, steps, out=None, every=None):
    return jobs.unclipped(gpt_lines(run, steps, out, every)) + ["shard: " + shard]


def equal_to_whole(run, ranks):
    steps, seen = 10 if run.quick else 30, {}
    with start_cluster(run, ranks) as c:
        for shard in ("none", "optimizer"):
            out = run.path(shard)
            losses, weights = train_together(c, run, shard, lines_of(run, shard, steps, out, steps), ranks, out)
            seen[shard] = losses, weights, jobs.moments(out)
    apart = jobs.difference(seen["optimizer"][0], seen["none"][0])
    found = {"ranks": ranks, "losses_apart": apart, "parameters_apart": jobs.floats_apart(seen["optimizer"][1], seen["none"][1]),
             "moments_apart": jobs.floats_apart(seen["optimizer"][2], seen["none"][2]), "same_bits": seen["optimizer"] == seen["none"]}
    if apart > MOST[ranks]:
        raise Failed("losses are up to %.2g from those of whole optimizers" % apart, found)
    return found


@check("shard", "shard-two-ranks", "`shard: optimizer` on 2 ranks against whole optimizers", least=30)
def shard_two_ranks(run):
    return equal_to_whole(run, 2)


@check("shard", "shard-four-ranks", "`shard: optimizer` on 4 ranks against whole optimizers", least=40)
def shard_four_ranks(run):
    return equal_to_whole(run, 4)


@check("shard", "shard-killed", "kill -9 of one of 2 ranks with `shard: optimizer`: the other keeps its process, the bits are those of an undisturbed run", least=50)
def shard_killed(run):
    steps, every = (40, 5) if run.quick else (240, 40)
    out, whole = run.path("killed"), run.path("whole")
    with start_cluster(run, 2) as c:
        train_together(c, run, "whole", lines_of(run, "optimizer", steps, whole, every), 2)
        job = c.submit(run.path("killed.yaml", jobs.text(lines_of(run, "optimizer", steps, out, every), procs=2)))
        ranks = wait_for_snapshot(c, job, run, out)
        os.kill(ranks[1]["pid"], signal.SIGKILL)
        status, _ = wait_succeeded(c, job, run)
        events = c.ddpctl("events", job).out
    resumed = re.search(r"state from snapshot step (\d+)", events)
    if status["restarts_used"] or not resumed or "(1 of 2 ranks can go on; " not in events:
        raise Failed("%d restarts for one kill, %s" % (status["restarts_used"], events))
    for name, state in (("model", jobs.tensors), ("optimizer", jobs.moments)):
        if state(out) != state(whole):
            raise Failed("the %s differs from that of an undisturbed run" % name)
    return {"steps": steps, "resumed_after": int(resumed.group(1))}


# ---- memory

STATE = ("parameter_bytes", "gradient_bytes", "optimizer_bytes")


def measure_memory(c, run, shard, lines, ranks):
    """Starts a job, and ends it after its first steps. Returns the MiB of all its ranks: of parameters, gradients and moments as computed;
    with activations; as allocated for the former; and what nvidia-smi shows, or None."""
    before = run.machine.memory_used()
    job = c.submit(run.path(shard + ".yaml", jobs.text(lines + ["shard: " + shard], procs=ranks, precision="bf16")))

    def trains():
        status = c.job(job)
        if status["state"] in ("failed", "cancelled", "succeeded"):
            raise Failed("the job %s: %s" % (status["state"], status["reason"]))
        return status["state"] == "running" and all(r["ms_per_step"] > 0 for r in status["ranks"])
    run.wait(trains, "the first steps")
    during = run.machine.memory_used()
    points = [p for p in points_of(c, job) if p["name"] in (*STATE, "activation_bytes", "state_bytes")]
    run.say(c.describe(job))
    c.ddpctl("cancel", job)
    c.wait_job(job, "cancelled", timeout=max(1.0, run.left()))
    c.wait_gone(job)
    told = {(p["name"], p["rank"]): p["value"] for p in points}
    if len(told) != (len(STATE) + 2) * ranks:
        raise Failed("not every rank has told its sizes: %s" % sorted(told))

    def mib(*names):
        return sum(value for (name, _), value in told.items() if name in names) / 2 ** 20
    return {"computed": mib(*STATE), "with_activations": mib(*STATE, "activation_bytes"), "allocated": mib("state_bytes"),
            "nvidia_smi": None if before is None or during is None else during - before}


@check("shard", "shard-memory", "memory of 2 ranks, whole and with `shard: optimizer`: computed, allocated, and by nvidia-smi", least=60)
def shard_memory(run):
    """The figures are MiB of both ranks together. A CUDA context and libraries take hundreds of MiB of each process that no rank computes,
    so what `shard` saves is compared."""
    ranks, shape = 2, jobs.gpt2_shape(run, "350m")
    tokens = jobs.write_tokens(run.path("tokens.bin"), vocab=shape[4])
    found = {}
    with start_cluster(run, ranks) as c:
        for shard, name in (("none", "whole"), ("optimizer", "shard")):
            lines = jobs.gpt2(shape, tokens, 2, 10 ** 6)
            found[name] = measure_memory(c, run, shard, lines, ranks)
    found["saved"] = {how: found["whole"][how] - found["shard"][how] if found["whole"][how] is not None else None for how in found["whole"]}
    saved = found["saved"]
    moments = 8 * (ranks - 1) * jobs.parameters(shape[0], *shape[2:]) / 2 ** 20
    if not 0.9 * moments <= saved["computed"] <= 1.1 * moments:
        raise Failed("%.4g MiB are saved, but moments of %.4g MiB are divided" % (saved["computed"], moments), found)
    for how in ("allocated", "nvidia_smi"):
        if saved[how] is not None and abs(saved[how] - saved["computed"]) > 0.1 * saved["computed"] + (SLACK_MIB if how == "nvidia_smi" else 0):
            raise Failed("%.4g MiB less by %s, %.4g as computed" % (saved[how], how, saved["computed"]), found)
    return found
