"""The report of tests/gpu/run: its form, how it is written, and how the reports of several calls become one. README.md describes it."""
import contextlib
import json
import os
import shutil
import sys
import tarfile
import tempfile

from suite import CHECKS, STAGES, STATES, count_states

FORMAT = 2
SAME = ("emulated", "quick", "versions")  # reports can be merged if these fields and the names of the GPUs are equal
LOG_BYTES = 1 << 20  # of each log in the archive: the first and the last half


def problems(report):
    """Returns a list of the errors in a report's form (see README.md). It is empty for a valid report."""
    kinds = {"format": int, "begun": str, "emulated": bool, "quick": bool, "bundle": bool, "gpus": list, "versions": list,
             "processor": str, "cores": int, "kernel": str, "python": str, "calls": list, "totals": dict, "checks": list}
    wrong = ["no %s" % key for key in kinds if not isinstance(report.get(key), kinds[key])]
    wrong += ["strange key " + key for key in report if key not in kinds]
    if report.get("format") != FORMAT:
        return ["format %s, this is %d" % (report.get("format"), FORMAT)]
    if wrong:
        return wrong
    fields = {"stage": str, "name": str, "about": str, "when": str, "state": str, "seconds": (int, float), "figures": dict}
    for c in report["checks"]:
        name = c.get("name", "?")
        wrong += ["%s: no %s" % (name, key) for key in fields if not isinstance(c.get(key), fields[key])]
        wrong += ["%s: strange key %s" % (name, key) for key in c if key not in fields and key not in ("reason", "log")]
        if c.get("state") not in STATES or c.get("stage") not in STAGES:
            wrong.append("%s: stage %s, state %s" % (name, c.get("stage"), c.get("state")))
        elif (c["state"] == "passed") == bool(c.get("reason")):
            wrong.append("%s: expected a reason if and only if the check did not pass" % name)
    counted = count_states(report["checks"])
    if report["totals"] != counted:
        wrong.append("totals %s, but %s" % (report["totals"], counted))
    if len({c.get("name") for c in report["checks"]}) != len(report["checks"]):
        wrong.append("a check is there twice")
    return wrong


def gpu_names(report):
    return [g.get("name", "?") for g in report["gpus"]]


def why_apart(one, other):
    """Returns why two reports cannot be merged, or None."""
    if gpu_names(one) != gpu_names(other):
        return "one is of %s, the other of %s" % tuple(", ".join(gpu_names(r)) or "no GPU" for r in (one, other))
    return next(("'%s' differs: %s and %s" % (key, one[key], other[key]) for key in SAME if one[key] != other[key]), None)


def has_result(entry):
    return entry["state"] in ("passed", "failed")


def newer_of(before, entry):
    """Returns which of two entries of one check to keep: the newer one, unless only the older one has a result."""
    return before if before and has_result(before) and not has_result(entry) else entry


def sort_checks(checks):
    order = {c.name: i for i, c in enumerate(CHECKS)}
    return sorted(checks, key=lambda c: (STAGES.index(c["stage"]), order.get(c["name"], len(order))))


def sort_checks_of(checks, stages, wanted):
    """Returns the checks of these stages whose names are wanted, in the order of the stages."""
    return sorted((c for c in checks if c.stage in stages and wanted(c.name)), key=lambda c: STAGES.index(c.stage))


class Report:
    """The report, a JSON file. It is rewritten after each check, so that an interrupted run leaves its results so far.
    call: the entry of this call in the list `calls`."""

    def __init__(self, path, about, call):
        self.path, self.about, self.call, self.written = path, about, call, False
        self.checks, self.calls = [], []
        before = self.earlier()
        if before:
            self.checks, self.calls = before["checks"], before["calls"]

    def earlier(self):
        """Returns an existing report. Renames a file that is not a report, or that is of another kind of GPU or build."""
        if not os.path.exists(self.path):
            return None
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError), open(self.path) as f:
            report = json.load(f)
            if isinstance(report, dict) and not problems(report) and not why_apart(report, self.about):
                return report
        with contextlib.suppress(OSError):
            os.replace(self.path, self.path + ".before")
            print("%s is not a report of this kind of GPU and build: renamed to %s.before" % (self.path, os.path.basename(self.path)),
                  file=sys.stderr)
        return None

    def add(self, entry):
        before = {c["name"]: c for c in self.checks}
        before[entry["name"]] = newer_of(before.get(entry["name"]), entry)
        self.checks = list(before.values())
        self.write()

    def figures(self, name):
        """Returns the figures of an earlier check, of this call or of one whose report this one extends."""
        return next((c["figures"] for c in self.checks if c["name"] == name), {})

    def content(self):
        return dict(self.about, format=FORMAT, calls=self.calls + [self.call], totals=count_states(self.checks),
                    checks=sort_checks(self.checks))

    def whole(self):
        return text_of(self.content())

    def write(self):
        """Writes the report. `written` tells whether it could be written: the disk may have room again after the next check."""
        self.written = write_file(self.path, self.whole())


def text_of(content):
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def write_file(path, text):
    """Writes a file as a whole. Returns False, and says why, if it cannot be written."""
    try:
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)
        return True
    except OSError as e:
        print("%s cannot be written: %s" % (path, e), file=sys.stderr)
        return False


def shortened(path):
    """Returns the bytes of a log, without the middle of a very long one."""
    with open(path, "rb") as f:
        said = f.read()
    if len(said) <= LOG_BYTES:
        return said
    half = LOG_BYTES // 2
    return said[:half] + b"\n... %d bytes are left out here ...\n" % (len(said) - 2 * half) + said[-half:]


def pack(archive, name, files):
    """Writes a tar of {name inside: path}. It unpacks into one directory. Returns False, and says why, if that fails."""
    try:
        with tempfile.TemporaryDirectory(prefix="ddp-gpu-pack-") as directory:
            top = os.path.join(directory, name)
            os.makedirs(top)
            for inside, path in files.items():
                to = os.path.join(top, inside)
                os.makedirs(os.path.dirname(to), exist_ok=True)
                with open(to, "wb") as f:
                    f.write(shortened(path))
            with tarfile.open(archive + ".new", "w:gz") as t:
                t.add(top, arcname=name)
        os.rename(archive + ".new", archive)
        return True
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(archive + ".new")
        print("%s cannot be written: %s" % (archive, e), file=sys.stderr)
        return False


def logs_of(checks, directory):
    """Returns {name inside: path} of the logs that exist."""
    named = [c["log"] for c in checks if c.get("log")]
    return {log: os.path.join(directory, log) for log in named if os.path.exists(os.path.join(directory, log))}


def pack_report(archive, name, directory, checks):
    """Packs the report, the page and the logs of a directory."""
    files = logs_of(checks, directory)
    for inside in (name + ".json", name + ".txt"):
        if os.path.exists(os.path.join(directory, inside)):
            files[inside] = os.path.join(directory, inside)
    return pack(archive, name, files)


# ---- reports of several calls

def read_report(path, scratch):
    """Reads a report from its JSON file or from the archive of a call. Returns it and the directory of its logs. Raises ValueError."""
    directory = os.path.dirname(os.path.abspath(path))
    try:
        if tarfile.is_tarfile(path):
            directory = tempfile.mkdtemp(dir=scratch)
            with tarfile.open(path) as t:
                plain = [m for m in t.getmembers() if m.isfile() and not m.name.startswith("/") and ".." not in m.name.split("/")]
                t.extractall(directory, members=plain)
            inside = [os.path.join(where, n) for where, _, names in os.walk(directory) for n in names]
            path, = [p for p in inside if p.endswith(".json") and os.sep + "logs" + os.sep not in p]
            directory = os.path.dirname(path)
        with open(path) as f:
            report = json.load(f)
        wrong = problems(report) if isinstance(report, dict) else ["it is not a report"]
    except (OSError, tarfile.TarError) as e:
        raise ValueError("%s: %s" % (path, e))
    except ValueError as e:
        raise ValueError("%s: not a report: %s" % (path, e))
    if wrong:
        raise ValueError("%s: not a report: %s" % (path, wrong[0]))
    return report, directory


def merge(paths, output, scratch):
    """Merges reports of several calls on one kind of GPU, in the order in which the calls began. Copies their logs into `output`.
    Returns the merged report. Raises ValueError if they do not belong together."""
    read = sorted((read_report(p, scratch) for p in paths), key=lambda r: r[0]["begun"])
    newest, checks, places, calls = read[-1][0], {}, {}, []
    for report, directory in read:
        why = why_apart(report, newest)
        if why:
            raise ValueError("these reports do not belong together: " + why)
        calls += [c for c in report["calls"] if c not in calls]
        for entry in report["checks"]:
            kept = newer_of(checks.get(entry["name"]), entry)
            if kept is entry:
                places[entry["name"]] = directory
            checks[entry["name"]] = kept
    merged = dict(newest, calls=calls, totals=count_states(checks.values()), checks=sort_checks(checks.values()))
    for name, entry in checks.items():
        for log, path in logs_of([entry], places[name]).items():
            to = os.path.join(output, log)
            if os.path.abspath(path) != os.path.abspath(to):
                os.makedirs(os.path.dirname(to), exist_ok=True)
                shutil.copy(path, to)
    return merged
