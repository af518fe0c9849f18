"""Checks, their time limits and how they are run. report.py keeps their results.

A check is a function with one argument, a Run. It returns figures, or raises Failed or Skipped with the reason:

    @check("training", "mlp-curve", "losses of an MLP against the CPU device")
    def mlp_curve(run):
        ...
        return {"largest_difference": 1e-6}

A check that raises any other exception, or exceeds its time limit, has failed. A check is left out if it does not fit into the
time that the call has left, or if it is still running when that time is over. In any case the next check runs. The output of a
check and of its programs goes to its log. SIGINT, SIGTERM and SIGHUP end the running check, the programs that it started, and the
whole call; the report then has the results so far."""
import contextlib
import datetime
import os
import re
import signal
import subprocess
import time
import traceback

# In the order in which they run: the most important stages come first, correctness before speed, and those that may use all
# remaining time come last.
STAGES = ("machine", "correctness", "nccl", "shard", "speed", "cluster", "training", "profile", "sanitizers", "peers")
STATES = ("passed", "failed", "skipped", "left_out")
CHECKS = []  # all checks, in the order in which they were defined
ENDS_BY_ITSELF = 10  # seconds that a check gets after its limit to end its programs


class Skipped(Exception):
    pass


class Failed(Exception):
    def __init__(self, reason, figures=None):
        Exception.__init__(self, reason)
        self.figures = figures or {}


class TimeUp(Failed):
    """The time limit of a check is over."""


class LeftOut(Exception):
    """There was too little time for a check."""


class Stopped(BaseException):
    """A signal that ends the whole call."""


held = None  # exceptions of signals that arrived while signals were held back; None: signals are not held back


def raise_signal(exception):
    """Raises the exception of a signal: now, or in `signals_release` if signals are held back."""
    if held is None:
        raise exception
    held.append(exception)


def signals_hold():
    """Holds back signals while a program starts, because it cannot be ended before its process id is known."""
    global held
    held = []


def signals_release():
    global held
    before, held = held, None
    if before:
        raise before[0]


def stop_by_signals():
    """From now on the first SIGINT, SIGTERM or SIGHUP raises Stopped. A second one ends the process at once."""
    def stop(number, _):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        raise_signal(Stopped(number))
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)


@contextlib.contextmanager
def time_limit(seconds):
    """A context manager that raises TimeUp in its body when the time is over, and again at intervals until the body ends."""
    def ring(*_):
        raise_signal(TimeUp("was not done after %.0f s and did not stop by itself" % seconds))
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
    """least: seconds that must be left to start the check; most: its time limit in seconds."""
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
        return (self.err.strip() or self.out.strip() or "no output").splitlines()[-1][:300]

    def ending(self):
        """Returns how the program ended, and its last words, for a message."""
        try:
            how = "was killed by %s" % signal.Signals(-self.code).name if self.code < 0 else "ended with %d" % self.code
        except ValueError:  # a real-time signal
            how = "was killed by signal %d" % -self.code
        return "%s %s: %s" % (os.path.basename(self.args[0]), how, self.last_words())


class Run:
    """One running check."""

    def __init__(self, machine, name, directory, log, deadline, quick):
        self.machine, self.name, self.dir, self.log, self.deadline, self.quick = (machine, name, directory, log, deadline,
                                                                                  quick)

    def left(self):
        return self.deadline - time.monotonic()

    def say(self, text):
        with contextlib.suppress(OSError), open(self.log, "a", errors="replace") as f:  # a full disk must not fail a check
            f.write(text.rstrip("\n") + "\n")

    def wait(self, condition, what):
        """Polls a condition until it holds. Returns the seconds that it took."""
        start = time.monotonic()
        while not condition():
            if self.left() <= 0:
                raise TimeUp("waited in vain for " + what)
            time.sleep(0.01)  # polling interval
        return time.monotonic() - start

    def path(self, name, text=None):
        """Returns the path of a file in this check's directory. Writes `text` to the file if it is given."""
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
        signals_hold()
        try:
            try:
                process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                           env=env or self.machine.env, cwd=cwd or self.dir, text=True, errors="replace",
                                           start_new_session=True)
            finally:
                signals_release()
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            out, err, ended = kill_process(process)
            self.say("$ %s\n%s%s" % (" ".join(args), out, err))
            raise TimeUp("%s was not done after %.0f s%s" % (os.path.basename(args[0]), limit, "" if ended else
                                                           ", and SIGKILL does not end it"))
        except BaseException:
            if process:
                kill_process(process)
            raise
        self.say("$ %s\n%s%s(exit %d)" % (" ".join(args), out, err, process.returncode))
        return Result(args, process.returncode, out, err)


def kill_process(process):
    """Kills a program and its children. Returns its stdout and stderr, and whether it is gone. A program that is stuck in the
    driver cannot be ended, and children that left its session are not killed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return (*process.communicate(timeout=ENDS_BY_ITSELF / 2), True)
    except subprocess.TimeoutExpired as e:
        said = [p.decode(errors="replace") if isinstance(p, bytes) else p or "" for p in (e.stdout, e.stderr)]
        return (*said, process.poll() is not None)


def plain_figure(value):
    """Returns a figure in the form of the report: floats are rounded, and objects that JSON does not have become text."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float("%.6g" % value) if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, (list, tuple)):
        return [plain_figure(v) for v in value]
    return {str(k): plain_figure(v) for k, v in value.items()} if isinstance(value, dict) else str(value)


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def figures_of(chosen, run):
    os.makedirs(os.path.dirname(run.log), exist_ok=True)
    os.makedirs(run.dir, exist_ok=True)
    open(run.log, "w").close()
    with open(run.log, "a") as said, contextlib.redirect_stderr(said):
        return plain_figure(chosen.function(run) or {})


def entry_of(chosen, **more):
    return dict({"stage": chosen.stage, "name": chosen.name, "about": chosen.about, "when": utc_now(), "figures": {}}, **more)


def skipped(chosen, reason):
    return entry_of(chosen, state="skipped", seconds=0, reason=reason)


def left_out(chosen, reason):
    return entry_of(chosen, state="left_out", seconds=0, reason=reason)


def attempt(chosen, machine, output, deadline, quick):
    """Runs one check and returns its entry in the report. Sets machine.stopped if a signal ended it and the call."""
    entry = entry_of(chosen)
    start = time.monotonic()
    least, most = 1 if quick else chosen.least, chosen.most
    if deadline - start < least:
        return left_out(chosen, "%.0f s of the call were left, it needs about %d" % (max(0, deadline - start), least))
    error = None
    cut, deadline = deadline < start + most, min(deadline, start + most)
    run = Run(machine, chosen.name, os.path.join(machine.scratch, chosen.name),
              os.path.join(output, "logs", chosen.name + ".log"), deadline, quick)
    try:
        with time_limit(deadline - start + ENDS_BY_ITSELF):
            entry.update(state="passed", figures=figures_of(chosen, run))
    except Skipped as e:
        entry.update(state="skipped", reason=str(e))
    except LeftOut as e:
        entry.update(state="left_out", reason=str(e))
    except Stopped as e:
        entry.update(state="skipped", reason="%s ended the call" % signal.Signals(e.args[0]).name)
        machine.stopped = e.args[0]
    except Failed as e:
        entry.update(state="failed", reason=str(e), figures=plain_figure(e.figures))
        error = e
    except (Exception, SystemExit) as e:  # a failed check must not prevent the next one
        run.say(traceback.format_exc())
        entry.update(state="failed", reason="%s: %s" % (type(e).__name__, str(e).strip()[:1000] or "no message"))
        error = e
    # Timeout is that of lib.cluster. A check that waited for longer than the call had time has not failed.
    if cut and run.left() < 1 and (isinstance(error, TimeUp) or type(error).__name__ == "Timeout"):
        entry.update(state="left_out", reason="the time of the call was up: " + entry["reason"])
    if entry.get("reason"):
        run.say("%s: %s" % (entry["state"], entry["reason"]))
    return dict(entry, seconds=round(time.monotonic() - start, 1), log=os.path.relpath(run.log, output))


def count_states(checks):
    return {state: len([c for c in checks if c.get("state") == state]) for state in STATES}


def figures_line(figures):
    """Returns the figures in one line, for the table."""
    cells = []
    for name, value in figures.items():
        if isinstance(value, (dict, list)):
            continue
        cells.append("%s %s" % (name, "%.4g" % value if isinstance(value, float) else value))
    return ", ".join(cells)


def entry_line(entry):
    """Returns an entry of the report in one line."""
    said = entry.get("reason") if entry["state"] != "passed" else figures_line(entry["figures"])
    return "%-8s  %-11s  %-22s %6.1f s  %s" % (entry["state"].replace("_", " "), entry["stage"], entry["name"], entry["seconds"],
                                               " ".join((said or "").split())[:160])
