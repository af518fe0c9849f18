"""The command tests/gpu/run: see README.md."""
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
# Importing a stage registers its checks. The report has them in the order of these imports.
import stage_correctness  # noqa: F401
import stage_training  # noqa: F401
import stage_nccl  # noqa: F401
import stage_cluster  # noqa: F401
import stage_speed  # noqa: F401


def parse_options():
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description="Runs the checks of ddp that need a GPU, writes a "
                                     "JSON report and prints a table. Exit codes: 0: no check failed; 1: a check failed; 2: wrong "
                                     "usage; 77: no check could run; 128 + N: signal N ended it.")
    stages = ", ".join(suite.STAGES)
    parser.add_argument("--stage", default=",".join(suite.STAGES), help="stages to run, separated by commas: %s (default: all)" % stages)
    parser.add_argument("--only", default="*", help="run only checks whose name matches, such as 'gpt-*'")
    parser.add_argument("--budget", type=float, default=540, help="seconds for the whole call (default: 540)")
    parser.add_argument("--output", default="gpu-out", help="directory of report and logs (default: gpu-out); an existing "
                        "report is extended")
    parser.add_argument("--save", action="store_true", help="also write the report into tests/gpu/reports")
    parser.add_argument("--build-dir", help="build directory to use (default: build, or the bundle that "
                        "contains this program)")
    parser.add_argument("--build", action="store_true", help="build first, even if there are programs")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes")
    parser.add_argument("--emulated", action="store_true", help="use the emulated device instead of a GPU")
    parser.add_argument("--plugin", metavar="FILE", help="use the device of this plugin instead of a GPU")
    parser.add_argument("--llmc", metavar="DIR", help="a checkout of llm.c to compare speed with")
    parser.add_argument("--list", action="store_true", help="list the checks and exit")
    o = parser.parse_args()
    o.stages = o.stage.split(",")
    for stage in o.stages:
        if stage not in suite.STAGES:
            parser.error("there is no stage '%s'; the stages are: %s" % (stage, ", ".join(suite.STAGES)))
    o.checks = [c for c in suite.CHECKS if c.stage in o.stages and fnmatch.fnmatch(c.name, o.only)]
    if not o.checks:
        parser.error("no check of these stages is called '%s'" % o.only)
    return o


def exit_with(code, reason):
    print("tests/gpu/run: " + reason, file=sys.stderr)
    sys.exit(code)


def prepare_machine(o, scratch):
    """Returns the machine. Builds the programs first if there are none."""
    programs, _ = machine.find_programs(o.build_dir)
    if o.build or not programs:
        with open(os.path.join(o.output, "build.log"), "a") as log:
            why = machine.build_here(lambda text: print(text, file=log, flush=True))
        if why:
            exit_with(77, "no programs to check, and none can be built here: %s (see %s/build.log)" % (why, o.output))
    plugin = os.path.abspath(o.plugin) if o.plugin else "emulated" if o.emulated else None
    m = machine.Machine(scratch, o.build_dir, plugin, o.llmc and os.path.abspath(o.llmc))
    if plugin and not os.path.exists(m.env["DDP_CUDA_PLUGIN"]):
        exit_with(77, "the emulated device was not built: no %s" % m.env["DDP_CUDA_PLUGIN"])
    if not plugin and not m.gpus:
        print("tests/gpu/run: nvidia-smi names no GPU here", file=sys.stderr)
    return m


def report_header(o, m):
    return dict(m.describe(), begun=suite.utc_now(), emulated=m.emulated, quick=o.quick, bundle=os.path.exists(
        os.path.join(os.path.dirname(m.bin), "BUNDLE.md")))


def make_directories(output):
    """Makes the directory of the report and logs, and a temporary directory. Returns both."""
    try:
        os.makedirs(output, exist_ok=True)
        tempfile.TemporaryFile(dir=output).close()
        return os.path.abspath(output), tempfile.mkdtemp(prefix="ddp-gpu-")
    except OSError as e:
        return exit_with(2, "nothing can be written: %s (--output DIR, and TMPDIR, name other places)" % e)


def report_of(o, m):
    name = "%s-%s%s.json" % (m.name(), datetime.date.today().isoformat(), "-quick" if o.quick else "")
    return suite.Report(os.path.join(o.output, name), report_header(o, m))


def run_checks(o, m, report, deadline):
    """Runs the checks and returns their entries; fewer if a signal ended the call."""
    done = []
    why = m.refusal()
    for chosen in o.checks:
        hopeless = why and (chosen.name != "device" or why.startswith("no GPU: nvidia-smi"))
        entry = suite.skipped(chosen, why) if hopeless else suite.attempt(chosen, m, o.output, deadline, o.quick)
        report.add(entry)
        done.append(entry)
        print(suite.entry_line(entry), flush=True)
        shutil.rmtree(os.path.join(m.scratch, chosen.name), ignore_errors=True)
        if m.stopped:
            break
    return done


def print_result(o, report, done):
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
    o = parse_options()
    if o.list:
        for c in o.checks:
            print("%-11s  %-20s  %s" % (c.stage, c.name, c.about))
        return 0
    deadline = time.monotonic() + o.budget
    o.output, scratch = make_directories(o.output)
    m = None
    try:
        suite.stop_by_signals()
        m = prepare_machine(o, scratch)
        report = report_of(o, m)
        code = print_result(o, report, run_checks(o, m, report, deadline))
        return 128 + m.stopped if m.stopped else code
    except suite.Stopped as e:  # the signal came between two checks; the report is already written
        return 128 + e.args[0]
    finally:
        if m:
            m.close()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
