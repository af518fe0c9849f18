"""The report as one page of text, for a reader: what failed, what was left out, speeds, and where the time of the call went."""
import suite

SIZES = ("124m", "350m", "774m", "1558m")
WIDE = 150  # characters of a line at most


def cut(text, most=WIDE):
    text = str(text).replace("\n", " ")
    return text if len(text) <= most else text[:most - 3] + "..."


def heading(report):
    gpus = report["gpus"]
    named = ", ".join("%s (%s MiB, driver %s, %s)" % (g.get("name"), g.get("memory_mb"), g.get("driver"), g.get("uuid"))
                      for g in gpus)
    kind = "the emulated GPU: its speed says nothing" if report["emulated"] else named or "no GPU"
    calls = report["calls"]
    lines = ["tests/gpu/run on " + kind,
             "%s, %d cores, Linux %s, Python %s%s%s" % (report["processor"] or "unknown processor", report["cores"], report["kernel"],
                                                       report["python"], ", from the bundle" if report["bundle"] else "",
                                                       ", smallest sizes" if report["quick"] else "")]
    lines += [cut(line) for said in report["versions"] for line in str(said).splitlines()]
    return lines + list(calls_by_gpu(calls))


def calls_by_gpu(calls):
    """Yields a line for each machine, because a merged report may be of dozens of calls."""
    for gpus in dict.fromkeys(tuple(c["gpus"]) for c in calls):
        here = [c for c in calls if tuple(c["gpus"]) == gpus]
        first = min(c["begun"] for c in here)
        said = "call of %s" % first if len(here) == 1 else "%d calls since %s" % (len(here), first)
        yield "%s: %.1f of %.1f minutes%s" % (said, sum(c["seconds"] for c in here) / 60, sum(c["minutes"] for c in here),
                                              ", on " + ", ".join(gpus) if gpus else "")


def verdict(report):
    t = report["totals"]
    if t["failed"]:
        said = "FAILED"
    elif not t["passed"]:
        said = "NOTHING WAS CHECKED"
    else:
        said = "no check failed" + (", but some were left out" if t["left_out"] else "")
    return "%s: %d passed, %d failed, %d skipped, %d left out" % (said, t["passed"], t["failed"], t["skipped"], t["left_out"])


def listed(report, state, title):
    lines = ["  %-11s %-22s %s" % (c["stage"], c["name"], cut(c["reason"], WIDE - 36)) for c in report["checks"]
             if c["state"] == state]
    return ["", title, *lines] if lines else []


def number(value, form="%.4g", missing="-"):
    return form % value if isinstance(value, (int, float)) and not isinstance(value, bool) else missing


def speeds(figures):
    rows = []
    for size in SIZES:
        f, peers = figures.get("gpt2-" + size), figures.get("peers-" + size, {})
        if not f:
            continue
        memory = f["memory_bytes"] / 2 ** 30 if f.get("memory_bytes") else None
        best, ours = peers.get("torch_best"), f.get("tokens_per_s")  # may come from two calls
        rows.append("  %-6s %12s %12s %8s %8s %8s %10s  %12s %8s  %s" % (
            size, number(f.get("tokens_per_s"), "%.0f"), number(f.get("aim_tokens_per_s"), "%.0f"), number(f.get("batch"), "%d"),
            number(f.get("tflops"), "%.0f"), number(f.get("share_of_matrix_rate"), "%.2f"),
            number(memory, "%.1f"), number(best, "%.0f"), number(ours / best if ours and best else None, "%.2f"), peers.get("torch_how", "")))
    head = "  %-6s %12s %12s %8s %8s %8s %10s  %12s %8s  %s" % ("size", "tokens/s", "H200's aim", "batch", "TFLOP/s", "of peak",
                                                              "GiB", "PyTorch", "times", "fastest PyTorch")
    return ["", "Speed: GPT-2, bf16, one GPU", head, *rows] if rows else []


def profiles(figures):
    lines = []
    for size in SIZES:
        f = figures.get("profile-" + size)
        if f and f.get("losses"):
            lines += ["", "Largest losses beside the roofline, %s (%s ms a step, %s ms by the roofline; the whole table: logs/profile-%s.log)" % (
                size, number(f.get("ms_per_step")), number(f.get("roofline_ms")), size)]
            lines += ["  %-58s %8s ms, roofline %8s, lost %8s" % (row[0], number(row[1]), number(row[2]), number(row[3]))
                      for row in f["losses"][:5]]
    return lines


def ranks_together(figures):
    """The figures of several ranks on one GPU."""
    def line(what, *cells):
        return "  %-34s %s" % (what, "  ".join(cells))
    lines = []
    kills = [(n, figures[name]) for n, name in ((2, "killed-rank"), (3, "killed-in-rounds"), (4, "killed-of-four")) if name in figures]
    if kills:
        lines.append(line("from SIGKILL to the next step", *("%d ranks %s s" % (n, number(f.get("seconds_to_go_on"), "%.2f")) for n, f in kills),
                          "(aim 3 s)"))
    f = figures.get("order-none")
    if f:
        lines.append(line("4 ranks, a step", *("%s %s ms" % (order, number(f.get(order + "_ms"), "%.3g")) for order in ("layout", "none"))))
    shards = [(n, figures[name]) for n, name in ((2, "shard-two-ranks"), (4, "shard-four-ranks")) if name in figures]
    if shards:
        lines.append(line("shard: optimizer, losses apart", *("%d ranks %s" % (n, number(f.get("losses_apart"), "%.1e")) for n, f in shards)))
    f = figures.get("shard-memory", {})
    for which, what in (("whole", "memory of 2 ranks, MiB"), ("shard", "  with shard: optimizer"), ("saved", "  saved")):
        if isinstance(f.get(which), dict):
            lines.append(line(what, *("%s %s" % (how.replace("_", " "), number(f[which].get(how)))
                                      for how in ("computed", "allocated", "with_activations", "nvidia_smi"))))
    f = figures.get("recompute")
    if f:
        lines.append(line("activations of a GPT, bytes", *("%s %s" % (what, number(f.get(name), "%d")) for what, name in
                                                           (("kept", "kept_bytes"), ("recomputed", "block_bytes")))))
    return ["", "Several ranks on one GPU, and memory", *lines] if lines else []


def times_by_stage(report):
    lines = []
    for stage in suite.STAGES:
        checks = [c for c in report["checks"] if c["stage"] == stage]
        if checks:
            count = suite.count_states(checks)
            lines.append("  %-11s %8.1f s  %2d passed, %d failed, %d skipped, %d left out" % (
                stage, sum(c["seconds"] for c in checks), *(count[s] for s in suite.STATES)))
    return ["", "Time by stage", *lines]


def page(report):
    """Returns the page for the content of a report."""
    figures = {c["name"]: c["figures"] for c in report["checks"] if c["figures"]}
    lines = [verdict(report), *heading(report)]
    lines += listed(report, "failed", "Failed") + listed(report, "left_out", "Left out: did not fit into the time")
    lines += listed(report, "skipped", "Skipped")
    lines += speeds(figures) + ranks_together(figures) + profiles(figures)
    lines += ["", "All checks", *("  " + cut(suite.entry_line(c)) for c in report["checks"])]
    return "\n".join(lines + times_by_stage(report)) + "\n"
