"""Checks several ranks on one GPU. Their result equals that of one rank on the same batch, two runs give the same bits, and
when a rank is killed, the others keep their processes and the job continues from their memory."""
import os
import re
import signal
import statistics
import time

import jobs
from suite import Failed, Skipped, check

MOST = 5e-3  # largest relative difference of losses after some tens of steps, because ranks add in another order
MOST_OF_BF16 = 3e-2  # the same, because gradients are rounded to 8 bits


def start_cluster(run, count):
    """Starts a cluster with one agent, which runs up to `count` workers on the GPU."""
    return run.machine.cluster(run, slots=count)


def points_of(c, job):
    """Returns what the ranks of a job have reported."""
    return c.ddpctl("metrics", job, "-o", "json").json()["points"]


def wait_succeeded(c, job, run):
    """Waits until the job has succeeded. Returns its status and the losses that rank 0 reported."""
    end = time.monotonic() + 20
    while c.job(job)["state"] == "queued":  # there is no other job, so it is placed at once
        if time.monotonic() > end:
            raise Failed("the job is not placed: " + c.job(job)["reason"])
        time.sleep(0.05)  # polling interval
    status = c.wait_job(job, "succeeded", timeout=max(1.0, run.left()))
    losses = {p["step"]: p["value"] for p in points_of(c, job) if p["name"] == "loss" and p["rank"] == 0}
    run.say(c.describe(job))
    return status, losses


def train_together(c, run, name, lines, ranks, out=None, **values):
    """Runs a job of several ranks to its end. Returns its losses, and with `out` the parameters of its last snapshot."""
    _, losses = wait_succeeded(c, c.submit(run.path(name + ".yaml", jobs.text(lines, procs=ranks, **values))), run)
    return losses, jobs.tensors(out) if out else None


def gpt_lines(run, steps, out=None, every=None):
    return jobs.gpt(jobs.write_text(run.path("text.txt")), steps, run.quick, every, out)


def equal_to_one(run, ranks):
    steps = 10 if run.quick else 60
    alone = run.path("alone")
    reports = jobs.train(run, jobs.text(gpt_lines(run, steps, alone, steps)), "alone")
    out = run.path("together")
    with start_cluster(run, ranks) as c:
        path = run.path("job.yaml", jobs.text(gpt_lines(run, steps, out, steps), procs=ranks))
        status, losses = wait_succeeded(c, c.submit(path), run)
    if len(status["ranks"]) != ranks:
        raise Failed("%d ranks, not %d" % (len(status["ranks"]), ranks))
    apart = jobs.difference(losses, jobs.curve(reports))
    weights = jobs.floats_apart(jobs.tensors(out), jobs.tensors(alone))
    found = {"ranks": ranks, "losses_apart": apart, "parameters_apart": weights,
             "device": status["ranks"][0].get("device", "")}
    if apart > MOST:
        raise Failed("losses of %d ranks are up to %.2g from those of one" % (ranks, apart), found)
    return found


@check("nccl", "two-ranks", "2 ranks on one GPU against one rank on the same global batch", least=30)
def two_ranks(run):
    return equal_to_one(run, 2)


@check("nccl", "four-ranks", "4 ranks on one GPU against one rank on the same global batch", least=40)
def four_ranks(run):
    return equal_to_one(run, 4)


@check("nccl", "same-bits-two-ranks", "2 ranks, twice: the same bits", least=40)
def same_bits(run):
    steps, seen = 10 if run.quick else 60, []
    with start_cluster(run, 2) as c:
        for name in ("one", "other"):
            out = run.path(name)
            path = run.path(name + ".yaml", jobs.text(gpt_lines(run, steps, out, steps), procs=2))
            wait_succeeded(c, c.submit(path), run)
            seen.append(jobs.tensors(out))
    if seen[0] != seen[1]:
        raise Failed("two runs of one job differ")
    return {"bytes": len(seen[0])}


def wait_for_snapshot(c, job, run, out):
    """Waits until a snapshot is committed and some steps follow it. Returns the ranks."""
    def there():
        status = c.job(job)
        if status["state"] in ("failed", "succeeded"):
            raise Failed("the job is %s before anything was killed: %s" % (status["state"], status["reason"]))
        return status["state"] == "running" and any(
            os.path.exists(os.path.join(out, d, "COMMITTED.json")) for d in (os.listdir(out) if os.path.isdir(out) else []))
    run.wait(there, "a committed snapshot")
    return c.job(job)["ranks"]


@check("nccl", "wire-bf16", "2 ranks with gradients as bf16 on the wire: losses near those of fp32, and the same bits again", least=40)
def wire_bf16(run):
    steps, seen = 10 if run.quick else 60, {}
    with start_cluster(run, 2) as c:
        for name, wire in (("exact", "fp32"), ("once", "bf16"), ("again", "bf16")):
            out = run.path(name)
            lines = gpt_lines(run, steps, out, steps) + ["sync: {type: allreduce, wire: %s}" % wire]
            seen[name] = train_together(c, run, name, lines, 2, out)
    apart = jobs.difference(seen["once"][0], seen["exact"][0])
    found = {"losses_apart": apart, "parameters_apart": jobs.floats_apart(seen["once"][1], seen["exact"][1])}
    if apart > MOST_OF_BF16:
        raise Failed("losses are up to %.2g from those of fp32" % apart, found)
    if seen["once"] != seen["again"]:
        raise Failed("two runs of one job differ", found)
    if not found["parameters_apart"]:
        raise Failed("bf16 makes no difference, so gradients did not cross the wire as bf16", found)
    return found


def kill_one(run, ranks, more=()):
    """The other ranks keep their processes, form a communicator with a new one, and send it the state. The figure seconds_to_go_on is
    the time from SIGKILL until each rank of the next generation has reported a step."""
    out, every = run.path("out"), 5 if run.quick else 50
    with start_cluster(run, ranks) as c:
        path = run.path("job.yaml", jobs.text(gpt_lines(run, 10 ** 6, out, every) + list(more), procs=ranks, restarts=3))
        job = c.submit(path)
        before = {r["rank"]: r["pid"] for r in wait_for_snapshot(c, job, run, out)}
        os.kill(before[1], signal.SIGKILL)

        def goes_on():
            status = c.job(job)
            if status["state"] in ("failed", "cancelled", "succeeded"):
                raise Failed("the job %s: %s" % (status["state"], status["reason"]))
            return status["state"] == "running" and status["generation"] == 2 and all(r["ms_per_step"] > 0 for r in status["ranks"])
        seconds = run.wait(goes_on, "the next generation's first step")
        status = c.job(job)
        run.say(c.describe(job))
        c.ddpctl("cancel", job)
        c.wait_job(job, "cancelled", timeout=max(1.0, run.left()))
        c.wait_gone(job)
    after = {r["rank"]: r["pid"] for r in status["ranks"]}
    if status["restarts_used"] or {r for r in before if before[r] != after[r]} != {1}:
        raise Failed("%d restarts for one kill, processes %s became %s" % (status["restarts_used"], before, after))
    return {"ranks": ranks, "seconds_to_go_on": seconds, "wanted_s": 3, "generation": status["generation"]}


@check("nccl", "killed-rank", "kill -9 of one of 2 ranks: communicators end, the job continues", least=40)
def killed_rank(run):
    return kill_one(run, 2)


@check("nccl", "killed-of-four", "kill -9 of one of 4 ranks: the other three keep their processes", least=45)
def killed_of_four(run):
    return kill_one(run, 4)


@check("nccl", "killed-in-rounds", "kill -9 of one of 3 ranks with diloco: the others keep their processes and go on within the round", least=45)
def killed_in_rounds(run):
    return kill_one(run, 3, ["sync: {type: diloco, every: 4, wire: int4}"])


@check("nccl", "order-none", "4 ranks with `reproducible: none` beside `layout`: losses, milliseconds of a step", least=40)
def order_none(run):
    """With `none` NCCL chooses the algorithm. On one GPU the ranks are connected by TCP, so the figures show that both ways work, not
    what many GPUs gain."""
    steps, losses, found = 12 if run.quick else 60, {}, {}
    with start_cluster(run, 4) as c:
        for order in ("layout", "none"):
            job = c.submit(run.path(order + ".yaml", jobs.text(gpt_lines(run, steps) + ["reproducible: " + order], procs=4)))
            _, losses[order] = wait_succeeded(c, job, run)
            found[order + "_ms"] = statistics.median(p["value"] for p in points_of(c, job) if p["name"] == "ms_per_step" and p["rank"] == 0 and
                                                     p["step"] > steps // 3)
    found["losses_apart"] = jobs.difference(losses["none"], losses["layout"])
    if found["losses_apart"] > MOST:
        raise Failed("losses are up to %.2g apart" % found["losses_apart"], found)
    return found


@check("nccl", "cycles", "100 communicators made and aborted in one process, without a leak", least=30, most=120)
def cycles(run):
    program = run.machine.test_program("nccl_cycles")
    if not program:
        raise Skipped("nccl_cycles was not built")
    done = run.command([program, "5" if run.quick else "100"], env=run.machine.test_env())
    if done.code == 77:
        raise Skipped(done.last_words())
    if done.code:
        raise Failed(done.ending())
    figures = {name: float(value) for name, value in re.findall(r"(\w+)=(-?[0-9.]+)", done.out)}
    if "less_free_mib" not in figures:
        raise Failed("nccl_cycles did not print its figures: '%s'" % done.last_words())
    return figures
