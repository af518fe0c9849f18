"""Tests whole jobs of one process: curves against the CPU device, the same bits in every run, and after kill -9."""
import jobs
from suite import Failed, Skipped, check

# Relative differences of losses that rounding alone causes. fp32: sums in another order. bf16: values between operations have 8 bits.
MOST = {"fp32": 2e-3, "bf16": 3e-2}
MOST_AT_END = 2e-2  # of the loss on data that was not trained on


def compare_with_cpu(run, lines, precision, steps, early=1.0):
    """Compares the curve of the GPU with that of the CPU device in fp32. early: the fraction of the steps that is compared. Training
    amplifies rounding differences: losses of a GPT that agree in 7 digits after 20 steps agree in 3 after 50, and in 2 after 90. So
    after that only the end is compared, where both have learned the same."""
    every = max(1, steps // 20)
    cpu = jobs.train(run, jobs.text(lines, device="cpu", log_every=every), "cpu")
    gpu = jobs.train(run, jobs.text(lines, precision=precision, log_every=every), "gpu")
    curves = [jobs.curve(r) for r in (gpu, cpu)]
    apart = jobs.difference(*({s: loss for s, loss in c.items() if s <= early * steps} for c in curves))
    first, *_, last = sorted(jobs.curve(gpu).items())
    found = {"largest_difference": apart, "first_loss": first[1], "last_loss": last[1]}
    validation = [jobs.curve(r, "val_loss") for r in (gpu, cpu)]
    if early < 1 and not all(validation):
        raise Failed("the trainer did not report a validation loss", found)
    if all(validation):
        found["val_loss"], found["val_loss_cpu"] = (list(v.values())[-1] for v in validation)
        found["at_end"] = jobs.difference(*validation)
    if apart > MOST[precision]:
        raise Failed("losses are up to %.2g apart, %.2g is rounding" % (apart, MOST[precision]), found)
    if found.get("at_end", 0) > MOST_AT_END:
        raise Failed("at the end the losses are %.2g apart" % found["at_end"], found)
    if last[1] > 0.98 * first[1]:
        raise Failed("nothing is learned: %.3f, then %.3f" % (first[1], last[1]), found)
    return found


@check("training", "mlp-curve", "an MLP's losses against the CPU device", least=20)
def mlp_curve(run):
    steps = 40 if run.quick else 400
    return compare_with_cpu(run, jobs.mlp(steps, run.quick), "fp32", steps)


@check("training", "gpt-curve-fp32", "a GPT's losses on a text against the CPU device, fp32", least=30)
def gpt_curve_fp32(run):
    steps = 20 if run.quick else 200
    return compare_with_cpu(run, jobs.gpt(jobs.write_text(run.path("text.txt")), steps, run.quick), "fp32", steps, early=1.0 if run.quick else 0.25)


@check("training", "gpt-curve-bf16", "a GPT's losses on a text in bf16 against the CPU device in fp32", least=30)
def gpt_curve_bf16(run):
    steps = 20 if run.quick else 200
    return compare_with_cpu(run, jobs.gpt(jobs.write_text(run.path("text.txt")), steps, run.quick), "bf16", steps, early=1.0 if run.quick else 0.25)


def run_twice(run, lines_of, precision):
    """Two runs leave the same parameters and moments, bit for bit, and report the same losses."""
    seen = []
    for name in ("one", "other"):
        out = run.path(name)
        reports = jobs.train(run, jobs.text(lines_of(out), precision=precision, log_every=1), name)
        seen.append((jobs.curve(reports), jobs.tensors(out), jobs.tensors(out, "optimizer.safetensors")))
    if seen[0] != seen[1]:
        what = [n for n, a, b in zip(("losses", "parameters", "moments"), *seen) if a != b]
        raise Failed("two runs of one job differ in " + ", ".join(what))
    return {"bytes": len(seen[0][1])}


@check("training", "same-bits-mlp", "an MLP, twice: the same bits", least=10)
def same_bits_mlp(run):
    steps = 20 if run.quick else 300
    return run_twice(run, lambda out: jobs.mlp(steps, run.quick, steps, out), "fp32")


@check("training", "same-bits-gpt", "a GPT in bf16 with dropout, twice: the same bits", least=20)
def same_bits_gpt(run):
    steps, text = 10 if run.quick else 200, jobs.write_text(run.path("text.txt"))
    return run_twice(run, lambda out: jobs.gpt(text, steps, run.quick, steps, out, dropout=0.1), "bf16")


@check("training", "recompute", "`recompute: block` needs less memory for a GPT's activations, and gives the same bits", least=20)
def recompute(run):
    steps, text, seen, kept = 6 if run.quick else 40, jobs.write_text(run.path("text.txt")), [], {}
    for again in ("none", "block"):
        out = run.path(again)
        lines = jobs.gpt(text, steps, run.quick, steps, out, dropout=0.1) + ["recompute: " + again]
        reports = jobs.train(run, jobs.text(lines, precision="bf16", log_every=1), again)
        kept[again] = next((r["activation_bytes"] for r in reports if "activation_bytes" in r), None)
        seen.append((jobs.curve(reports), jobs.tensors(out), jobs.tensors(out, "optimizer.safetensors")))
    found = {"kept_bytes": kept["none"], "block_bytes": kept["block"]}
    if seen[0] != seen[1]:
        what = [n for n, a, b in zip(("losses", "parameters", "moments"), *seen) if a != b]
        raise Failed("with recompute: block other bits of " + ", ".join(what), found)
    if not kept["block"] or not kept["block"] < kept["none"]:
        raise Failed("no memory is saved", found)
    return found


@check("training", "kill-and-resume", "kill -9, then resume from the last snapshot: the bits of an undisturbed run", least=30)
def kill_and_resume(run):
    text = jobs.write_text(run.path("text.txt"))
    steps, every = (40, 10) if run.quick else (600, 100)
    killed = None
    for factor in (1, 4, 16):  # the run may end before this check sees its first snapshot
        total, out = factor * steps, run.path("killed-%d" % factor)
        job = jobs.text(jobs.gpt(text, total, run.quick, every, out, dropout=0.1), precision="bf16", log_every=10)
        killed = jobs.kill_after_snapshot(run, job, "killed", out)
        if killed is not None:
            break
    if killed is None:
        raise Skipped("the runs ended before they could be killed")
    jobs.train(run, job, "resumed")
    whole = run.path("whole")
    jobs.train(run, job.replace(out, whole), "whole")
    for name in ("model.safetensors", "optimizer.safetensors"):
        if jobs.tensors(out, name) != jobs.tensors(whole, name):
            raise Failed("%s differs from that of an undisturbed run" % name, {"killed_after": killed})
    return {"killed_after": killed, "steps": total}


@check("training", "other-device", "a snapshot of the GPU is continued on the CPU, and the other way round", least=20)
def other_device(run):
    text, out = jobs.write_text(run.path("text.txt")), run.path("out")
    steps = 10 if run.quick else 100
    losses = []
    for part, device in enumerate(("cuda", "cpu", "cuda"), 1):
        lines = jobs.gpt(text, 3 * steps, run.quick, steps, out)
        lines[lines.index("steps: %d" % (3 * steps))] = "steps: %d" % (part * steps)
        lines = [line for line in lines if not line.startswith("schedule")]  # the schedule depends on the number of steps
        reports = jobs.train(run, jobs.text(lines, device=device, log_every=1), "part-%d" % part)
        seen = jobs.curve(reports)
        if min(seen) != (part - 1) * steps + 1 or max(seen) != part * steps:
            raise Failed("part %d on %s trained steps %d to %d" % (part, device, min(seen), max(seen)))
        losses.append(seen)
    jump = [abs(after[min(after)] - before[max(before)]) for before, after in zip(losses, losses[1:])]
    spread = max(abs(a - b) for s in losses for a, b in zip(list(s.values()), list(s.values())[1:]))
    if max(jump) > 3 * spread + 0.05:
        raise Failed("losses jump by %.3f where the device changes" % max(jump))
    return {"jumps": jump, "last_loss": losses[-1][3 * steps]}
