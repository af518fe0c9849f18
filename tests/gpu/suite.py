"""Checks, their budget and their report.

A check is a function of one argument, a Run, which returns figures, raises Failed, or Skipped with the reason:

    @check("training", "mlp-curve", "losses of an MLP against the CPU device")
    def mlp_curve(run):
        ...
        return {"largest_difference": 1e-6}

A check that breaks in any other way has failed, and the next one runs. What it and its programs say goes to its log."""
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import time
import traceback

FORMAT = 1
STAGES = ("correctness", "training", "nccl", "cluster", "speed")
STATES = ("passed", "failed", "skipped")
CHECKS = []  # in the order of the files that define them


class Skipped(Exception):
    pass


class Failed(Exception):
    def __init__(self, reason, figures=None):
        Exception.__init__(self, reason)
        self.figures = figures or {}


class Check:
    def __init__(self, stage, name, about, function, least, most):
        self.stage, self.name, self.about, self.function = stage, name, about, function
        self.least, self.most = least, most


def check(stage, name, about, least=5, most=180):
    """least: seconds below which it is not begun; most: when it is given up, so that others have their turn."""
    def register(function):
        assert stage in STAGES and re.fullmatch("[a-z0-9-]+", name) and name not in [c.name for c in CHECKS], name
        CHECKS.append(Check(stage, name, about, function, least, most))
        return function
    return register


class Result:
    """What a finished program left: code (negative: signal), out, err."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def last_words(self):
        return (self.err.strip() or self.out.strip() or "nothing said").splitlines()[-1][:300]


class Run:
    """One check under way."""

    def __init__(self, machine, name, directory, log, deadline, quick):
        self.machine, self.name, self.dir, self.log, self.deadline, self.quick = (machine, name, directory, log, deadline,
                                                                                  quick)
        os.makedirs(directory, exist_ok=True)

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        with open(self.log, "a") as f:
            f.write(text.rstrip("\n") + "\n")

    def wait(self, condition, what):
        """Polls a condition until it holds; the seconds that took."""
        start = time.monotonic()
        while not condition():
            if self.left() <= 0:
                raise Failed("waited in vain for " + what)
            time.sleep(0.01)  # between two looks
        return time.monotonic() - start

    def path(self, name, text=None):
        """A file of this check's own directory, written where there is a text."""
        path = os.path.join(self.dir, name)
        if text is not None:
            with open(path, "w") as f:
                f.write(text)
        return path

    def command(self, args, env=None, cwd=None, most=None):
        """Runs a program to its end, or ends it and its children when the time is over."""
        args = [str(a) for a in args]
        limit = max(1.0, min(most or self.left(), self.left()))
        process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=env or self.machine.env, cwd=cwd or self.dir, text=True, errors="replace",
                                   start_new_session=True)
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            self.say("$ %s\n%s%s" % (" ".join(args), out, err))
            raise Failed("%s was not done after %.0f s" % (os.path.basename(args[0]), limit))
        self.say("$ %s\n%s%s(exit %d)" % (" ".join(args), out, err, process.returncode))
        return Result(args, process.returncode, out, err)


def plain(value):
    """A figure as it goes into the report: numbers short, everything else text."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float("%.6g" % value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return {str(k): plain(v) for k, v in value.items()}


class Report:
    """The JSON file, written anew after each check, so that a run that is cut off leaves what it has."""

    def __init__(self, path, about):
        self.path, self.checks = path, []
        self.about = about
        if os.path.exists(path):
            with open(path) as f:
                self.checks = json.load(f)["checks"]

    def add(self, entry):
        self.checks = [c for c in self.checks if c["name"] != entry["name"]] + [entry]
        self.write()

    def totals(self):
        return {state: len([c for c in self.checks if c["state"] == state]) for state in STATES}

    def write(self):
        order = {c.name: i for i, c in enumerate(CHECKS)}
        checks = sorted(self.checks, key=lambda c: order.get(c["name"], len(order)))
        whole = dict(self.about, format=FORMAT, totals=self.totals(), checks=checks)
        with open(self.path + ".new", "w") as f:
            json.dump(whole, f, indent=1, sort_keys=True)
            f.write("\n")
        os.rename(self.path + ".new", self.path)


def problems(report):
    """What is wrong with a report's form (README.md has it); none for a good one."""
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


def attempt(chosen, machine, output, deadline, quick):
    """Runs one check; its entry in the report."""
    entry = {"stage": chosen.stage, "name": chosen.name, "about": chosen.about, "when": now(), "figures": {}}
    left = deadline - time.monotonic()
    if left < (1 if quick else chosen.least):
        return dict(entry, state="skipped", seconds=0, reason="%.0f s were left of the budget, it wants %d" % (
            max(0, left), chosen.least))
    log = os.path.join(output, "logs", chosen.name + ".log")
    os.makedirs(os.path.dirname(log), exist_ok=True)
    open(log, "w").close()
    start = time.monotonic()
    deadline = min(deadline, start + (min(60, chosen.most) if quick else chosen.most))
    run = Run(machine, chosen.name, os.path.join(machine.scratch, chosen.name), log, deadline, quick)
    try:
        with open(log, "a") as said, contextlib.redirect_stderr(said):
            figures = chosen.function(run) or {}
        entry.update(state="passed", figures=plain(figures))
    except Skipped as e:
        entry.update(state="skipped", reason=str(e))
    except Failed as e:
        entry.update(state="failed", reason=str(e), figures=plain(e.figures))
    except Exception as e:  # the next check is worth running whatever this one met
        run.say(traceback.format_exc())
        entry.update(state="failed", reason="%s: %s" % (type(e).__name__, str(e).strip()[:1000] or "no words"))
    if entry.get("reason"):
        run.say("%s: %s" % (entry["state"], entry["reason"]))
    return dict(entry, seconds=round(time.monotonic() - start, 1), log=os.path.relpath(log, output))


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
