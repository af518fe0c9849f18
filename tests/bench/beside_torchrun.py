"""ddpctl run compared with torchrun: the same program under both, in turn, on this machine. Prints medians and their ratio.

  wall        from start to end of a program of two ranks that ends at once (tests/bench/launch_rank.c)
  first line  from start until both ranks have begun, as C, as Python, and as Python that imports torch
  restart     from kill -9 of rank 1 until both ranks have begun again, with the same programs; preload: the last one with
              `--preload torch.distributed`, killed when the spares are ready

Each restart is the first one of a new job, because ddp lets a job wait a little before a second restart, and torchrun does not.
"""
import glob
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
from lib import torch_python  # noqa: E402
from lib.cluster import Cluster, program, wait_for  # noqa: E402

RANK = os.path.join(os.environ.get("DDP_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build")),
                    "bench", "launch_rank")
PYTHON = """%s
import os, signal, time
line = "%%.9f %%s %%d\\n" %% (time.time(), os.environ["RANK"], os.getpid())
fd = os.open(os.environ["LAUNCH_OUT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
os.write(fd, line.encode())
while True: signal.pause()
"""


def launchers(python):
    flags = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--no-python"]
    return {"ddpctl run": [program("ddpctl"), "run", *flags],
            "torchrun": [python, "-m", "torch.distributed.run", *flags]}


class Started:
    """A program of two ranks under one of the launchers. Each rank writes its starts to a file."""

    def __init__(self, c, command):
        self.path = os.path.join(c.dir, "lines")
        if os.path.exists(self.path):
            os.remove(self.path)
        self.begun = time.time()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=c.dir,
                                        stderr=subprocess.DEVNULL, env=dict(c.env, LAUNCH_OUT=self.path))
        c.started.append(self.process)

    def lines(self, count):
        """Waits for the first `count` lines and returns them as (time, rank, pid)."""
        def there():
            if not os.path.exists(self.path):
                return None
            with open(self.path) as f:
                found = f.read().splitlines()
            return found if len(found) >= count else None
        return [(float(at), int(rank), int(pid)) for at, rank, pid in
                map(str.split, wait_for(there, "%d ranks to begin" % count, 120))]

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(timeout=60)


def wall(c, launcher):
    started = Started(c, [*launcher, RANK, "once"])
    code = started.process.wait(timeout=120)
    took = time.time() - started.begun
    assert code == 0, code
    return took


def first_line(c, launcher, command):
    started = Started(c, [*launcher, *command])
    took = max(at for at, _, _ in started.lines(2)) - started.begun
    started.end()
    return took


def spares_ready(c, count):
    """Whether the run has so many spares."""
    text = ""
    for path in glob.glob(c.env["TMPDIR"] + "/ddp-run-*/logs/1/supervisor.*.log"):
        with open(path) as f:
            text += f.read()
    return text.count("event=spare_ready") >= count


def restart(c, launcher, command):
    started = Started(c, [*launcher, *command])
    [victim] = [pid for _, rank, pid in started.lines(2) if rank == 1]
    if "--preload" in launcher:
        wait_for(lambda: spares_ready(c, 2), "the spares", 60)
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    took = max(at for at, _, _ in started.lines(4)) - killed
    started.end()
    return took


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def row(name, aim, ours, theirs):
    print("%-18s %12.1f %12.1f %8s %8s %6d" % (name, median(ours) * 1000, median(theirs) * 1000,
                                               "1/%.1f" % (median(theirs) / median(ours)), aim, len(ours)))
    sys.stdout.flush()


def machine(python):
    with open("/proc/cpuinfo") as f:
        model = [line.split(":")[1].strip() for line in f if line.startswith("model name")]
    print("%d x %s, load %.1f, torch %s" % (os.cpu_count(), model[0] if model else "CPU", os.getloadavg()[0],
                                            torch_python.imports_torch(python)))


def measure_restarts(c, both, programs, rounds):
    """One row for each program, and a last one with spares that have imported torch."""
    script = c.write("rank.py", PYTHON % "import torch.distributed")
    c.env["TMPDIR"] = os.path.join(c.dir, "tmp")
    os.mkdir(c.env["TMPDIR"])
    rows = [("restart, " + name, command, []) for name, command in programs.items()]
    rows.append(("restart, preload", [programs["torch"][0], script], ["--preload", "torch.distributed"]))
    for name, command, flags in rows:
        both["ddpctl run"] += flags
        pairs = [[restart(c, both[launcher], command) for launcher in both] for _ in range(rounds)]
        row(name, {"restart, C": "1/10", "restart, preload": "1/4"}.get(name, "-"),
            [ours for ours, _ in pairs], [theirs for _, theirs in pairs])
        if command != programs["C"]:
            print("%-18s %12.1f s" % ("  saved", median([theirs - ours for ours, theirs in pairs])))


def measure(rounds):
    python, wrong = torch_python.find_recent()
    if not python:
        print("skipped: " + wrong)
        return
    machine(python)
    print("%-18s %12s %12s %8s %8s %6s" % ("ms, medians", "ddpctl run", "torchrun", "ratio", "aim", "n"))
    programs = {"C": [RANK], "Python": [python, "-c", PYTHON % ""], "torch": [python, "-c", PYTHON % "import torch.distributed"]}
    with Cluster(start=False) as c:
        both = launchers(python)
        times = [[wall(c, both[name]) for name in both] for _ in range(rounds)]
        row("wall", "1/15", [ours for ours, _ in times], [theirs for _, theirs in times])
        for name, command in programs.items():
            times = [[first_line(c, both[launcher], command) for launcher in both] for _ in range(rounds)]
            row("first line, " + name, "-", [ours for ours, _ in times], [theirs for _, theirs in times])
        measure_restarts(c, both, programs, rounds)
        c.wait_gone()


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
