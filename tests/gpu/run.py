"""tests/gpu/run: see README.md."""
import argparse
import datetime
import fnmatch
import os
import shutil
import sys
import tempfile
import time

import machine
import suite
# Each registers its checks; the order is the report's.
import stage_correctness  # noqa: F401
import stage_training  # noqa: F401
import stage_nccl  # noqa: F401
import stage_cluster  # noqa: F401
import stage_speed  # noqa: F401


def options():
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description="Every check of ddp that wants a GPU, a JSON report, "
                                     "and a table. Exit: 0 nothing failed, 1 something did, 2 usage, 77 nothing could run, 128 and "
                                     "the signal that ended it.")
    parser.add_argument("--stage", default=",".join(suite.STAGES), help="of %s, by commas (all)" % ", ".join(suite.STAGES))
    parser.add_argument("--only", default="*", help="checks whose name matches, as in 'gpt-*'")
    parser.add_argument("--budget", type=float, default=540, help="seconds for all of it (540)")
    parser.add_argument("--output", default="gpu-out", help="directory of report and logs (gpu-out); a report that is there "
                        "is added to")
    parser.add_argument("--save", action="store_true", help="the report goes into tests/gpu/reports, too")
    parser.add_argument("--build-dir", help="the build to use (build, or the bundle around this program)")
    parser.add_argument("--build", action="store_true", help="build first, whatever is there")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes")
    parser.add_argument("--emulated", action="store_true", help="on the emulated device, where no GPU is")
    parser.add_argument("--plugin", metavar="FILE", help="on the device of this plugin")
    parser.add_argument("--llmc", metavar="DIR", help="a checkout of llm.c to compare speed with")
    parser.add_argument("--list", action="store_true", help="name the checks and end")
    o = parser.parse_args()
    o.stages = o.stage.split(",")
    for stage in o.stages:
        if stage not in suite.STAGES:
            parser.error("there is no stage '%s', but %s" % (stage, ", ".join(suite.STAGES)))
    o.checks = [c for c in suite.CHECKS if c.stage in o.stages and fnmatch.fnmatch(c.name, o.only)]
    if not o.checks:
        parser.error("no check of these stages is called '%s'" % o.only)
    return o


def leave(code, reason):
    print("tests/gpu/run: " + reason, file=sys.stderr)
    sys.exit(code)


def prepare(o, scratch):
    """The machine, with programs to run."""
    programs, _ = machine.find_programs(o.build_dir)
    if o.build or not programs:
        with open(os.path.join(o.output, "build.log"), "a") as log:
            why = machine.build_here(lambda text: print(text, file=log, flush=True))
        if why:
            leave(77, "no programs to check, and none can be built here: %s (see %s/build.log)" % (why, o.output))
    plugin = os.path.abspath(o.plugin) if o.plugin else "emulated" if o.emulated else None
    m = machine.Machine(scratch, o.build_dir, plugin, o.llmc and os.path.abspath(o.llmc))
    if plugin and not os.path.exists(m.env["DDP_CUDA_PLUGIN"]):
        leave(77, "the emulated device was not built: no %s" % m.env["DDP_CUDA_PLUGIN"])
    if not plugin and not m.gpus:
        print("tests/gpu/run: nvidia-smi names no GPU here", file=sys.stderr)
    return m


def about(o, m):
    return dict(m.describe(), begun=suite.now(), emulated=m.emulated, quick=o.quick, bundle=os.path.exists(
        os.path.join(os.path.dirname(m.bin), "BUNDLE.md")))


def places(output):
    """The directory of report and logs, made, and one to work in."""
    try:
        os.makedirs(output, exist_ok=True)
        tempfile.TemporaryFile(dir=output).close()
        return os.path.abspath(output), tempfile.mkdtemp(prefix="ddp-gpu-")
    except OSError as e:
        return leave(2, "nothing can be written: %s (--output DIR, and TMPDIR, name other places)" % e)


def report_of(o, m):
    name = "%s-%s%s.json" % (m.name(), datetime.date.today().isoformat(), "-quick" if o.quick else "")
    return suite.Report(os.path.join(o.output, name), about(o, m))


def run_checks(o, m, report, deadline):
    """Runs the checks and returns their entries; fewer if a signal ended the call."""
    done = []
    why = m.refusal()
    for chosen in o.checks:
        hopeless = why and (chosen.name != "device" or why.startswith("no GPU: nvidia-smi"))
        entry = suite.skipped(chosen, why) if hopeless else suite.attempt(chosen, m, o.output, deadline, o.quick)
        report.add(entry)
        done.append(entry)
        print(suite.line(entry), flush=True)
        shutil.rmtree(os.path.join(m.scratch, chosen.name), ignore_errors=True)
        if m.stopped:
            break
    return done


def conclude(o, report, done):
    """Prints the result. Returns the exit status."""
    totals = {s: len([e for e in done if e["state"] == s]) for s in suite.STATES}
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped; " % totals +
          (report.path if report.written else "the report, which could not be written:\n" + report.whole()), flush=True)
    if o.save:
        try:
            os.makedirs(os.path.join(machine.HERE, "reports"), exist_ok=True)
            shutil.copy(report.path, os.path.join(machine.HERE, "reports"))
        except OSError as e:
            print("tests/gpu/run: --save: %s" % e, file=sys.stderr)
    return 1 if totals["failed"] else 0 if totals["passed"] else 77


def main():
    o = options()
    if o.list:
        for c in o.checks:
            print("%-11s  %-20s  %s" % (c.stage, c.name, c.about))
        return 0
    deadline = time.monotonic() + o.budget
    o.output, scratch = places(o.output)
    m = None
    try:
        suite.stop_by_signals()
        m = prepare(o, scratch)
        report = report_of(o, m)
        code = conclude(o, report, run_checks(o, m, report, deadline))
        return 128 + m.stopped if m.stopped else code
    except suite.Stopped as e:  # between checks: what they found is written
        return 128 + e.args[0]
    finally:
        if m:
            m.close()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
