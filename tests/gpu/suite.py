"""Checks, their budget and their report.

A check is a function of one argument, a Run, which returns figures, raises Failed, or Skipped with the reason:

    @check("training", "mlp-curve", "losses of an MLP against the CPU device")
    def mlp_curve(run):
        ...
        return {"largest_difference": 1e-6}

A check that breaks in any other way, or that exceeds its time limit, has failed, and the next one runs. The output of a
check and of its programs goes to its log. SIGINT, SIGTERM and SIGHUP end the running check, the programs that it started
and the whole call; the report then has the results so far."""
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback

FORMAT = 1
STAGES = ("correctness", "training", "nccl", "cluster", "speed")
STATES = ("passed", "failed", "skipped")
CHECKS = []  # in the order of the files that define them
ENDS_BY_ITSELF = 10  # seconds that a check gets after its limit to end its programs


class Skipped(Exception):
    pass


class Failed(Exception):
    def __init__(self, reason, figures=None):
        Exception.__init__(self, reason)
        self.figures = figures or {}


class Stopped(BaseException):
    """A signal that ends the whole call."""


held = None  # exceptions of signals that came while they were held back; None: they are raised at once


def happen(exception):
    """Raises the exception of a signal, now or in `let_happen`."""
    if held is None:
        raise exception
    held.append(exception)


def hold_back():
    """Holds back signals while a program starts, because it cannot be ended before its process id is known."""
    global held
    held = []


def let_happen():
    global held
    before, held = held, None
    if before:
        raise before[0]


def stop_by_signals():
    """From now on these signals raise Stopped; the second one ends the process at once."""
    def stop(number, _):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        happen(Stopped(number))
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)


@contextlib.contextmanager
def time_limit(seconds):
    """Raises Failed in the code inside when the time is over, repeatedly until that code ends."""
    def ring(*_):
        happen(Failed("was not done after %.0f s, and hung" % seconds))
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, ENDS_BY_ITSELF)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Check:
    def __init__(self, stage, name, about, function, least, most):
        self.stage, self.name, self.about, self.function = stage, name, about, function
        self.least, self.most = least, most


def check(stage, name, about, least=5, most=180):
    """least: seconds that must be left to start the check; most: seconds after which it is given up."""
    def register(function):
        assert stage in STAGES and re.fullmatch("[a-z0-9-]+", name) and name not in [c.name for c in CHECKS], name
        CHECKS.append(Check(stage, name, about, function, least, most))
        return function
    return register


class Result:
    """The results of a finished program: exit code (negative: signal), stdout, stderr."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def last_words(self):
        return (self.err.strip() or self.out.strip() or "nothing said").splitlines()[-1][:300]


class Run:
    """One running check."""

    def __init__(self, machine, name, directory, log, deadline, quick):
        self.machine, self.name, self.dir, self.log, self.deadline, self.quick = (machine, name, directory, log, deadline,
                                                                                  quick)

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        with contextlib.suppress(OSError), open(self.log, "a", errors="replace") as f:  # a full disk does not fail a check
            f.write(text.rstrip("\n") + "\n")

    def wait(self, condition, what):
        """Polls a condition until it holds. Returns the seconds that it took."""
        start = time.monotonic()
        while not condition():
            if self.left() <= 0:
                raise Failed("waited in vain for " + what)
            time.sleep(0.01)  # between two looks
        return time.monotonic() - start

    def path(self, name, text=None):
        """The path of a file in this check's directory. Writes the file if there is a text."""
        path = os.path.join(self.dir, name)
        if text is not None:
            with open(path, "w") as f:
                f.write(text)
        return path

    def command(self, args, env=None, cwd=None, most=None):
        """Runs a program to its end. Ends it and its children when the time is over."""
        args = [str(a) for a in args]
        limit = max(1.0, min(most or self.left(), self.left()))
        process = None
        hold_back()
        try:
            try:
                process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env=env or self.machine.env, cwd=cwd or self.dir, text=True, errors="replace",
                                           start_new_session=True)
            finally:
                let_happen()
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            out, err, ended = end(process)
            self.say("$ %s\n%s%s" % (" ".join(args), out, err))
            raise Failed("%s was not done after %.0f s%s" % (os.path.basename(args[0]), limit, "" if ended else
                                                           ", and SIGKILL does not end it"))
        except BaseException:
            if process:
                end(process)
            raise
        self.say("$ %s\n%s%s(exit %d)" % (" ".join(args), out, err, process.returncode))
        return Result(args, process.returncode, out, err)


def end(process):
    """Kills a program and its children. Returns its stdout and stderr, and whether it is gone. A program that is stuck in the
    driver stays, and so may children that hold its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return (*process.communicate(timeout=ENDS_BY_ITSELF / 2), True)
    except subprocess.TimeoutExpired as e:
        said = [p.decode(errors="replace") if isinstance(p, bytes) else p or "" for p in (e.stdout, e.stderr)]
        return (*said, process.poll() is not None)


def plain(value):
    """A figure as the report holds it: numbers are rounded, everything else is text."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float("%.6g" % value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return {str(k): plain(v) for k, v in value.items()} if isinstance(value, dict) else str(value)


class Report:
    """The JSON file. It is rewritten after each check, so that an interrupted run leaves its results so far."""

    def __init__(self, path, about):
        self.path, self.about, self.written = path, about, False
        self.checks = self.earlier()

    def earlier(self):
        """The checks of an existing report. A file that is not a report, or that is about something else, is renamed."""
        if not os.path.exists(self.path):
            return []
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError), open(self.path) as f:
            report = json.load(f)
            if isinstance(report, dict) and not problems(report) and all(
                    report[key] == self.about[key] for key in ("emulated", "quick", "gpus", "versions")):
                return report["checks"]
        with contextlib.suppress(OSError):
            os.replace(self.path, self.path + ".before")
            print("%s is of another kind: it is now %s.before" % (self.path, os.path.basename(self.path)), file=sys.stderr)
        return []

    def add(self, entry):
        self.checks = [c for c in self.checks if c["name"] != entry["name"]] + [entry]
        try:
            self.write()
            self.written = True
        except OSError as e:  # the disk may have room again after the next check
            self.written = False
            print("the report cannot be written: %s" % e, file=sys.stderr)

    def totals(self):
        return {state: len([c for c in self.checks if c["state"] == state]) for state in STATES}

    def whole(self):
        order = {c.name: i for i, c in enumerate(CHECKS)}
        checks = sorted(self.checks, key=lambda c: order.get(c["name"], len(order)))
        return json.dumps(dict(self.about, format=FORMAT, totals=self.totals(), checks=checks), indent=1, sort_keys=True)

    def write(self):
        with open(self.path + ".new", "w") as f:
            f.write(self.whole() + "\n")
        os.rename(self.path + ".new", self.path)


def problems(report):
    """The errors in the form of a report (see README.md); an empty list for a valid one."""
    kinds = {"format": int, "begun": str, "emulated": bool, "quick": bool, "bundle": bool, "gpus": list, "versions": list,
             "processor": str, "cores": int, "kernel": str, "python": str, "totals": dict, "checks": list}
    wrong = ["no %s" % key for key in kinds if not isinstance(report.get(key), kinds[key])]
    wrong += ["strange key " + key for key in report if key not in kinds]
    if wrong or report["format"] != FORMAT:
        return wrong or ["format %d, this is %d" % (report["format"], FORMAT)]
    fields = {"stage": str, "name": str, "about": str, "when": str, "state": str, "seconds": (int, float), "figures": dict}
    for c in report["checks"]:
        name = c.get("name", "?")
        wrong += ["%s: no %s" % (name, key) for key in fields if not isinstance(c.get(key), fields[key])]
        wrong += ["%s: strange key %s" % (name, key) for key in c if key not in fields and key not in ("reason", "log")]
        if c.get("state") not in STATES or c.get("stage") not in STAGES:
            wrong.append("%s: stage %s, state %s" % (name, c.get("stage"), c.get("state")))
        elif (c["state"] == "passed") == bool(c.get("reason")):
            wrong.append("%s: a reason is for what did not pass" % name)
    counted = {s: len([c for c in report["checks"] if c.get("state") == s]) for s in STATES}
    if report["totals"] != counted:
        wrong.append("totals %s, but %s" % (report["totals"], counted))
    if len({c.get("name") for c in report["checks"]}) != len(report["checks"]):
        wrong.append("a check is there twice")
    return wrong


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def figures_of(chosen, run):
    os.makedirs(os.path.dirname(run.log), exist_ok=True)
    os.makedirs(run.dir, exist_ok=True)
    open(run.log, "w").close()
    with open(run.log, "a") as said, contextlib.redirect_stderr(said):
        return plain(chosen.function(run) or {})


def entry_of(chosen, **more):
    return dict({"stage": chosen.stage, "name": chosen.name, "about": chosen.about, "when": now(), "figures": {}}, **more)


def skipped(chosen, reason):
    return entry_of(chosen, state="skipped", seconds=0, reason=reason)


def attempt(chosen, machine, output, deadline, quick):
    """Runs one check and returns its entry in the report. Sets machine.stopped if a signal ended it and the call."""
    entry = entry_of(chosen)
    left = deadline - time.monotonic()
    if left < (1 if quick else chosen.least):
        return skipped(chosen, "%.0f s were left of the budget, it wants %d" % (max(0, left), chosen.least))
    start = time.monotonic()
    deadline = min(deadline, start + (min(60, chosen.most) if quick else chosen.most))
    run = Run(machine, chosen.name, os.path.join(machine.scratch, chosen.name),
              os.path.join(output, "logs", chosen.name + ".log"), deadline, quick)
    try:
        with time_limit(deadline - start + ENDS_BY_ITSELF):
            entry.update(state="passed", figures=figures_of(chosen, run))
    except Skipped as e:
        entry.update(state="skipped", reason=str(e))
    except Stopped as e:
        entry.update(state="skipped", reason="%s ended the call" % signal.Signals(e.args[0]).name)
        machine.stopped = e.args[0]
    except Failed as e:
        entry.update(state="failed", reason=str(e), figures=plain(e.figures))
    except (Exception, SystemExit) as e:  # the next check runs, whatever happened in this one
        run.say(traceback.format_exc())
        entry.update(state="failed", reason="%s: %s" % (type(e).__name__, str(e).strip()[:1000] or "no words"))
    if entry.get("reason"):
        run.say("%s: %s" % (entry["state"], entry["reason"]))
    return dict(entry, seconds=round(time.monotonic() - start, 1), log=os.path.relpath(run.log, output))


def short(figures):
    """The figures in one cell of the table."""
    cells = []
    for name, value in figures.items():
        if isinstance(value, (dict, list)):
            continue
        cells.append("%s %s" % (name, "%.4g" % value if isinstance(value, float) else value))
    return ", ".join(cells)


def line(entry):
    said = entry.get("reason") if entry["state"] != "passed" else short(entry["figures"])
    return "%-7s  %-11s  %-22s %6.1f s  %s" % (entry["state"], entry["stage"], entry["name"], entry["seconds"],
                                               " ".join((said or "").split())[:160])
