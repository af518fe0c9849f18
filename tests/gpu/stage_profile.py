"""Measures the milliseconds of a step by operation and shape, and compares them with the roofline. The trainer measures each
operation with CUDA events (DDP_CUDA_PROFILE), which needs neither root nor a tool of the machine. It counts the floating-point
operations of products and the bytes that an operation must read and write. The roofline of an operation is the larger one of two
times: floating-point operations divided by the machine's rate of products, and bytes divided by its rate of copies. The check
`rates` measures both; without it the vendor's rates are used."""
import glob
import json

import jobs
from stage_speed import batch_of, need_gpu, train_gpt2, vendor_rate
from suite import Failed, check

BANDWIDTH = (("H200", 4.8e12), ("GH200", 4.0e12), ("H100", 3.35e12), ("A100", 2.0e12), ("B200", 8.0e12))  # bytes/s, as the vendor states
LARGEST = 10  # rows of the page
STEPS = 17  # a prime, so that calls_of can tell steps from the evaluation at the end, which is one more forward pass


def rates_of(machine):
    """Returns (floating-point operations, bytes, where these rates come from), each per second; None if a rate is unknown."""
    measured = machine.earlier("rates")
    if measured.get("bf16_tflops") and measured.get("copy_gb_s"):
        return measured["bf16_tflops"] * 1e12, measured["copy_gb_s"] * 1e9, "measured on this machine"
    name = machine.gpus[0]["name"] if machine.gpus else ""
    return vendor_rate(machine), next((rate for word, rate in BANDWIDTH if word in name), None), "the vendor's"


def read_profile(path):
    """Returns the rows of the file that the trainer wrote. Its last line says how many there are."""
    with open(path) as f:
        try:
            rows = [json.loads(line) for line in f]
        except ValueError as e:
            raise Failed("the profile is not whole: %s" % e)
    if not rows or rows[-1].get("rows") is None:
        raise Failed("the profile is not whole: its last line is missing")
    if rows[-1]["lost"]:
        raise Failed("the profile has no room for %d calls" % rows[-1]["lost"])
    return rows[:-1]


def calls_of(calls, steps):
    """Returns the calls in a step."""
    return calls / (steps + 1) if calls % steps and calls % (steps + 1) == 0 else calls / steps


def table_of(rows, steps, flops_per_s, bytes_per_s):
    """Returns rows (name, calls in a step, ms in a step, roofline ms or None, what limits it), the largest loss first. Operations
    that run less than once in a step belong to the start of the run and are left out."""
    table = []
    for r in rows:
        calls = calls_of(r["calls"], steps)
        if calls < 0.9:
            continue
        bounds = [(r[what] / rate * 1e3 * calls, limit) for what, rate, limit in
                  (("flops", flops_per_s, "products"), ("bytes", bytes_per_s, "memory")) if rate and r[what]]
        least, limit = max(bounds, default=(None, ""))
        table.append((" ".join((r["name"], r["shape"])), calls, r["median_us"] / 1e3 * calls, least, limit))
    return sorted(table, key=lambda row: (row[3] or 0) - row[2])


def table_text(table, where):
    lines = ["roofline: rates are " + where,
             "%-64s %8s %10s %10s %10s  %s" % ("operation", "a step", "ms", "roofline", "lost", "limited by")]
    for name, calls, ms, least, limit in table:
        lines.append("%-64s %8.1f %10.4f %10s %10s  %s" % (name, calls, ms, "-" if least is None else "%.4f" % least,
                                                       "-" if least is None else "%.4f" % (ms - least), limit))
    return "\n".join(lines)


def measure_profile(run, size):
    need_gpu(run)
    tokens = jobs.write_tokens(run.path("tokens.bin"), vocab=jobs.gpt2_shape(run, size)[4])
    batch = run.machine.earlier("gpt2-" + size).get("batch") or batch_of(run, size)
    _, batch, _ = train_gpt2(run, size, tokens, batch, STEPS, DDP_CUDA_PROFILE=run.path("profile"))
    files = glob.glob(run.path("profile") + ".*")
    if not files:
        raise Failed("the trainer wrote no profile")
    flops_per_s, bytes_per_s, where = rates_of(run.machine)
    table = table_of(read_profile(max(files)), STEPS, flops_per_s, bytes_per_s)
    if not table:
        raise Failed("the profile has no operation of a step")
    run.say(table_text(table, where))
    known = [row for row in table if row[3] is not None]
    unknown = sum(row[2] for row in table if row[3] is None)
    return {"ms_per_step": sum(row[2] for row in table), "roofline_ms": sum(row[3] for row in known), "no_roofline_ms": unknown,
            "batch": batch, "rates": where, "losses": [[row[0], row[2], row[3], row[2] - row[3]] for row in known[:LARGEST]]}


@check("profile", "profile-124m", "milliseconds by operation: GPT-2 124M", least=20, most=90)
def profile_124m(run):
    return measure_profile(run, "124m")


@check("profile", "profile-350m", "milliseconds by operation: GPT-2 350M", least=20, most=90)
def profile_350m(run):
    return measure_profile(run, "350m")


@check("profile", "profile-774m", "milliseconds by operation: GPT-2 774M", least=25, most=90)
def profile_774m(run):
    return measure_profile(run, "774m")


@check("profile", "profile-1558m", "milliseconds by operation: GPT-2 1.5B", least=35, most=120)
def profile_1558m(run):
    return measure_profile(run, "1558m")
