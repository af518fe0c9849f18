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
import page
import report as reports
import suite
# Importing a stage registers its checks.
import stage_machine  # noqa: F401
import stage_correctness  # noqa: F401
import stage_speed  # noqa: F401
import stage_nccl  # noqa: F401
import stage_shard  # noqa: F401
import stage_cluster  # noqa: F401
import stage_training  # noqa: F401
import stage_profile  # noqa: F401
import stage_sanitizers  # noqa: F401
import stage_peers  # noqa: F401

RESERVE = 15  # seconds at the end of the call for a check that ends late, the page and the archive
EXIT_CODES = "Exit codes: 0: no check failed; 1: a check failed; 2: wrong usage; 77: no check could run; 128 + N: signal N ended it."


def parse_options():
    stages = ", ".join(suite.STAGES)
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description="Runs the checks of ddp that need a GPU. Writes a report, a page "
                                     "of text and an archive of both with all logs, and prints a table. " + EXIT_CODES)
    parser.add_argument("--minutes", type=float, default=10, help="how long the whole call may take (default: 10); checks that do not "
                        "fit are left out, and the report names them")
    parser.add_argument("--stage", help="stages to run, separated by commas: %s (default: all but profile)" % stages)
    parser.add_argument("--only", default="*", help="run only checks whose name matches one of these, "
                        "separated by commas, such as 'gpt-*,memcheck'")
    parser.add_argument("--profile", action="store_true", help="also the stage profile: milliseconds by operation, beside the roofline")
    parser.add_argument("--no-peers", action="store_true", help="without the stage peers (PyTorch, llm.c)")
    parser.add_argument("--output", default="gpu-out", help="directory of report and logs (default: gpu-out); an existing "
                        "report of the same kind of GPU is extended")
    parser.add_argument("--archive", metavar="DIR", help="directory of the archive (default: that of the report)")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="run no checks; merge the reports of several calls on the same kind of GPU "
                        "(archives or .json files) into one")
    parser.add_argument("--save", action="store_true", help="also write report and page into tests/gpu/reports")
    parser.add_argument("--build-dir", help="build directory to use (default: build, or the bundle that "
                        "contains this program)")
    parser.add_argument("--build", action="store_true", help="build first, even if there are programs")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes")
    parser.add_argument("--emulated", action="store_true", help="use the emulated device instead of a GPU, with the smallest sizes")
    parser.add_argument("--plugin", metavar="FILE", help="use the device of this plugin instead of a GPU")
    parser.add_argument("--llmc", metavar="DIR", help="a checkout of llm.c to compare speed with")
    parser.add_argument("--list", action="store_true", help="list the checks and exit")
    o = parser.parse_args()
    o.stages = o.stage.split(",") if o.stage else [s for s in suite.STAGES if s != "profile"]
    for stage in o.stages:
        if stage not in suite.STAGES:
            parser.error("there is no stage '%s'; the stages are: %s" % (stage, stages))
    o.stages += ["profile"] * o.profile
    o.stages = [s for s in o.stages if not (o.no_peers and s == "peers")]
    o.checks = reports.sort_checks_of(suite.CHECKS, o.stages, lambda name: any(
        fnmatch.fnmatch(name, pattern) for pattern in o.only.split(",")))
    if not o.checks:
        parser.error("no check of these stages is called '%s'" % o.only)
    if not o.minutes > 0:
        parser.error("--minutes: expected a positive number")
    o.quick = o.quick or o.emulated
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


def make_directories(output):
    """Makes the directory of the report and logs, and a temporary directory. Returns both."""
    try:
        os.makedirs(output, exist_ok=True)
        tempfile.TemporaryFile(dir=output).close()
        return os.path.abspath(output), tempfile.mkdtemp(prefix="ddp-gpu-")
    except OSError as e:
        return exit_with(2, "nothing can be written: %s (--output DIR, and TMPDIR, name other places)" % e)


class Call:
    """This call: its options, machine and report, and what it has done so far."""

    def __init__(self, o, m, start):
        self.o, self.m, self.start, self.done = o, m, start, []
        self.name = "%s-%s%s" % (m.name(), datetime.date.today().isoformat(), "-quick" if o.quick else "")
        about = dict(m.describe(), begun=suite.utc_now(), emulated=m.emulated, quick=o.quick,
                     bundle=os.path.exists(os.path.join(os.path.dirname(m.bin), "BUNDLE.md")))
        self.about = {"begun": about["begun"], "minutes": o.minutes, "seconds": 0.0, "gpus": [g["uuid"] for g in m.gpus]}
        self.report = reports.Report(os.path.join(o.output, self.name + ".json"), about, self.about)
        m.earlier = self.report.figures

    def add(self, entry):
        """Adds the result of a check to the report and the page, and prints it."""
        self.about["seconds"] = round(time.monotonic() - self.start, 1)
        self.report.add(entry)
        self.done.append(entry)
        reports.write_file(self.report.path[:-5] + ".txt", page.page(self.report.content()))
        print(suite.entry_line(entry), flush=True)

    def pack(self):
        """Writes the archive. It is written after each stage, so that a call that is killed leaves one."""
        o = self.o
        archive = os.path.join(o.archive or o.output, self.name + ".tar.gz")
        reports.pack_report(archive, self.name, o.output, self.report.checks)
        return archive

    def run_checks(self):
        o, m = self.o, self.m
        deadline = self.start + o.minutes * 60 - min(RESERVE, o.minutes * 6)
        m.deadline = deadline
        why = m.refusal()
        for i, chosen in enumerate(o.checks):
            m.waiting = [c.name for c in o.checks[i + 1:]]
            hopeless = why and (chosen.stage not in ("machine", "correctness") or why.startswith("no GPU: nvidia-smi"))
            self.add(suite.skipped(chosen, why) if hopeless else suite.attempt(chosen, m, o.output, deadline, o.quick))
            shutil.rmtree(os.path.join(m.scratch, chosen.name), ignore_errors=True)
            if m.stopped:
                break
            if i + 1 < len(o.checks) and o.checks[i + 1].stage != chosen.stage:
                self.pack()

    def print_result(self):
        """Prints the result. Returns the exit status."""
        totals = suite.count_states(self.done)
        archive = self.pack()
        print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped, %(left_out)d left out; " % totals + (
            "%s\nthe page: %s.txt\nall of it: %s" % (self.report.path, self.report.path[:-5], archive) if self.report.written
            else "the report, which could not be written:\n" + self.report.whole()), flush=True)
        if self.o.save:
            save(self.report.path[:-5])
        return 1 if totals["failed"] else 0 if totals["passed"] else 77


def save(path):
    """Copies the report and the page to tests/gpu/reports. path: without the ending .json or .txt."""
    try:
        os.makedirs(os.path.join(machine.HERE, "reports"), exist_ok=True)
        for ending in (".json", ".txt"):
            shutil.copy(path + ending, os.path.join(machine.HERE, "reports"))
    except OSError as e:
        print("tests/gpu/run: --save: %s" % e, file=sys.stderr)


def merge(o, scratch):
    """Makes one report of several. Returns the exit status."""
    try:
        merged = reports.merge(o.merge, o.output, scratch)
    except ValueError as e:
        return exit_with(2, str(e))
    name = "%s-%s%s" % (machine.report_name(merged["emulated"], merged["gpus"]), merged["begun"][:10],
                        "-quick" if merged["quick"] else "")
    path = os.path.join(o.output, name)
    written = (reports.write_file(path + ".json", reports.text_of(merged)) and
               reports.write_file(path + ".txt", page.page(merged)) and
               reports.pack_report(os.path.join(o.archive or o.output, name + ".tar.gz"), name, o.output, merged["checks"]))
    if not written:
        return 2
    if o.save:
        save(path)
    print("%s.json\n%s.txt\n%s" % (path, path, os.path.join(o.archive or o.output, name + ".tar.gz")))
    return 0


def main():
    o = parse_options()
    if o.list:
        for c in o.checks:
            print("%-11s  %-20s  %s" % (c.stage, c.name, c.about))
        return 0
    start = time.monotonic()
    o.output, scratch = make_directories(o.output)
    m = None
    try:
        if o.merge:
            return merge(o, scratch)
        suite.stop_by_signals()
        m = prepare_machine(o, scratch)
        call = Call(o, m, start)
        call.run_checks()
        code = call.print_result()
        return 128 + m.stopped if m.stopped else code
    except suite.Stopped as e:  # the signal came between two checks; the report is already written
        return 128 + e.args[0]
    finally:
        if m:
            m.close()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
