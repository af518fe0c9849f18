#!/usr/bin/python3
"""Train jobs on emulated GPUs, summed by the stand-in NCCL, go on without a stop when a rank is lost and when nodes come.

lost     one of four ranks is killed: the others keep their processes, the new one gets the state, and the job ends with the
         parameters of an undisturbed run, bit for bit
grow     a second agent comes: the ranks keep their processes, and NCCL carries the state to the new ranks
average  one of four ranks is killed in its local steps, and each process of rank 2 in its third exchange, when it has the mean and has
         not applied it: the others keep their processes, and the job ends with as many exchanges as an undisturbed one
diloco   the same with int4, before codes are sent, and with floats beside steps that overlap the exchange

    live.py [CASE ...]
"""
import contextlib
import glob
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cluster"))
from lib.cluster import Cluster, wait_for  # noqa: E402

STEPS = 60
THIRD = 3  # of a process's exchanges
SIZES = 20, 64, 1
STATE = 3 * 4 * (20 * 64 + 64 + 64 + 1)  # bytes: parameters and two moments
JOB = """
nodes: %s
procs_per_node: %d
device: auto
max_restarts: 0
max_replacements: 100
env: {DDP_TEST_STEP_MS: "100:%s", DDP_TEST_KILL_IN_ROUND: "%s"}
train:
  model: {type: mlp, sizes: [%s]}
  data: {type: synthetic, samples: 512}
  optimizer: {type: adamw, lr: 0.001}
  global_batch: 32
  steps: %d
  log_every: 2
  sync: %s
"""


def cluster(slots):
    c = Cluster(agents=0, slots=slots, config="settle: 500ms", start=False)
    c.env.update(CUDA_VISIBLE_DEVICES="0", DDP_STANDIN_NCCL_DIR=c.dir, DDP_STANDIN_NCCL_COUNTS=os.path.join(c.dir, "counts"),
                 DDP_CUDA_PLUGIN=os.path.join(os.environ["DDP_BUILD"], "lib", "ddp_emulated", "libddp_cuda.so"))
    c.start(1)
    return c


class Run:
    def __init__(self, c, nodes, procs, sync="{type: allreduce}", kill=""):
        """Until end(), a step takes at least 100 ms."""
        self.c, self.slow = c, c.write("slow", "")
        self.job = c.submit(c.write("live.yaml", JOB % (nodes, procs, self.slow, kill, ", ".join(map(str, SIZES)), STEPS, sync)))

    def runs(self, generation):
        """Waits until that generation makes steps. Returns {rank: pid}."""
        first = []

        def reached():
            status = self.c.job(self.job)
            assert status["state"] not in ("failed", "succeeded"), self.c.describe(self.job)
            if status["generation"] < generation or status["state"] != "running":
                return False
            first.append((status["progress"] or {}).get("step", 0))
            return first[-1] > first[0] and {r["rank"]: r["pid"] for r in status["ranks"]}
        return wait_for(reached, lambda: "steps of generation %d\n%s" % (generation, self.c.describe(self.job)), 60)

    def end(self):
        """Returns the last metrics of rank 0."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.slow)
        status = self.c.wait_job(self.job, "succeeded", timeout=120)
        self.c.wait_gone(self.job)
        assert status["restarts_used"] == 0 and status["progress"]["step"] == STEPS, self.c.describe(self.job)
        for log in glob.glob(os.path.join(self.c.dir, "logs-*", str(self.job), "*", "*", "*", "stderr.log")):
            with open(log, errors="replace") as f:
                said = f.read()
            assert "Emulated H200" in said and "sums_through_host" not in said, said
        return status["progress"]["metrics"]


def digest(metrics):
    return metrics["digest_high"], metrics["digest_low"]


def case_lost():
    with cluster(4) as c:
        undisturbed = digest(Run(c, 1, 4).end())
        run = Run(c, 1, 4)
        before = run.runs(1)
        os.kill(before[2], signal.SIGKILL)
        after = run.runs(2)
        assert {r for r in before if before[r] != after[r]} == {2}, (before, after)
        assert digest(run.end()) == undisturbed
        events = c.ddpctl("events", run.job).out
        assert "3 of 4 ranks can go on" in events and "no step to redo" in events, events


def case_grow():
    with cluster(2) as c:
        run = Run(c, '"1:2"', 2)
        before = run.runs(1)
        c.start_agent("n2")
        after = run.runs(2)
        assert len(after) == 4 and set(before.values()) < set(after.values()), (before, after)
        run.end()
        said = [e["text"] for e in c.events(run.job) if e["what"] == "handed_over"]
        assert len(said) == 1 and said[0].startswith("grew from 1 to 2 nodes") and "without a stop" in said[0], said
        with open(os.path.join(c.dir, "counts")) as f:
            sent = [int(n) for n in re.findall(r"broadcast_bytes=(\d+)", f.read())]
        assert max(sent) >= STATE, sent


def lose_in_rounds(c, sync, phase):
    rounds = Run(c, 1, 4, sync).end()["round"]
    run = Run(c, 1, 4, sync, "2:%s:%d" % (phase, THIRD))
    before = run.runs(1)
    os.kill(before[1], signal.SIGKILL)
    steps = run.runs(2)
    assert {r for r in before if before[r] != steps[r]} == {1}, (before, steps)
    exchange = run.runs(3)
    assert {r for r in steps if steps[r] != exchange[r]} == {2}, (steps, exchange)
    made = run.end()["round"]
    events = c.ddpctl("events", run.job).out
    generations = c.job(run.job)["generation"]
    longer = generations - 1 if "overlap" in sync else 0  # rounds that steps beside the exchange have made longer
    assert rounds - longer <= made <= rounds, (rounds, made, events)
    assert generations > 2 and events.count("from the memory of rank") == generations - 1, events


def case_average():
    with cluster(4) as c:
        lose_in_rounds(c, "{type: average, every: 8}", "commit")


def case_diloco():
    with cluster(4) as c:
        lose_in_rounds(c, "{type: diloco, every: 8, wire: int4}", "sum")
        lose_in_rounds(c, "{type: diloco, every: 8, overlap: 2}", "commit")


for name in sys.argv[1:] or ["lost", "grow"]:
    print("--", name, flush=True)
    globals()["case_" + name]()
