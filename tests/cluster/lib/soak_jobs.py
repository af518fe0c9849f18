"""The jobs of tests/cluster/soak: submitting them, watching them, and checking at the end what they left."""
import collections
import glob
import json
import os
import subprocess
import time

from lib.cluster import Result, Timeout, wait_for

ENDED = ("succeeded", "failed", "cancelled")
OPEN_MOST = 4
STILL_S = 120  # a job with placed ranks that shows nothing new for this long hangs
STEPS = 3000

# A rank holds its lock while it lives. A process that finds the lock taken is a second copy of the rank.
SCRIPT = """exec 8> lock-$DDP_JOB_ID-$RANK
flock -n 8 || { echo "job $DDP_JOB_ID generation $DDP_GENERATION on $DDP_NODE" >> overlap; exit 1; }
i=0
while [ $i -lt $LENGTH ]; do
    i=$((i + 1))
    echo "{\\"step\\": $i}" >&$DDP_REPORT_FD
    sleep 0.1 8>&-
done
echo "rank $RANK did $LENGTH steps"
"""
COMMAND = """
name: %s
nodes: %d
max_restarts: 1000
grace: 2s
lease: 12s
workdir: %s
env: {LENGTH: '%d'}
command: [sh, run.sh]
"""
TRAIN = """
name: %s
nodes: %d
procs_per_node: %d
device: cpu
max_restarts: 1000
train:
  model: {type: mlp, sizes: [20, 128, 128, 1]}
  data: {type: synthetic, samples: 2048}
  optimizer: {type: adamw, lr: 0.001}
  batch: 32
  steps: %d
  snapshot: {dir: %s, every: 250, keep: 2}
"""


def final_bits(directory):
    """Returns the file of the parameters. None: there is none."""
    for path in sorted(glob.glob("%s/step-%d-g*/model.safetensors" % (directory, STEPS)))[-1:]:
        with open(path, "rb") as f:
            return f.read()
    return None


class Job:
    def __init__(self, name, ranks, length=0, shape=None, out=None):
        self.name, self.ranks, self.length, self.shape, self.out = name, ranks, length, shape, out


class Jobs:
    def __init__(self, cluster, dice):
        self.c, self.dice = cluster, dice
        cluster.write("run.sh", SCRIPT)
        self.acknowledged = {}  # number: name
        self.made = {}          # name: Job
        self.seen = {}          # number: (what it showed last, since when)
        self.ended = {}         # number: its last status
        self.whole = {}         # shape: (number, bits) of an undisturbed run
        self.hanging = set()
        self.refused = 0
        self.slow = 0.0         # the longest wait for an answer

    def ddpctl(self, *args):
        """Runs ddpctl. A call that hangs counts as not answered."""
        try:
            return self.c.ddpctl(*args, check=False)
        except subprocess.TimeoutExpired:
            return Result([str(arg) for arg in args], -1, "", "timed out")

    # ---- submitting

    def submit(self, job, text):
        self.made[job.name] = job
        done = self.ddpctl("submit", "-o", "json", self.c.write(job.name + ".yaml", text))
        if done.code != 0:
            self.refused += 1  # the job was not acknowledged
            return None
        number = done.json()["job"]
        self.acknowledged[number] = job.name
        return number

    def command(self, length=None):
        nodes, length = self.dice.choice((1, 1, 2, 3)), length or self.dice.choice((5, 30, 150))
        job = Job("command-%d" % len(self.made), nodes, length=length)
        return self.submit(job, COMMAND % (job.name, nodes, self.c.dir, length))

    def train(self, shape=None):
        shape = shape or self.dice.choice(list(self.whole))
        job = Job("train-%d" % len(self.made), shape[0] * shape[1], shape=shape)
        job.out = os.path.join(self.c.dir, "out-" + job.name)
        return self.submit(job, TRAIN % (job.name, *shape, STEPS, job.out))

    def reference(self):
        """Makes undisturbed runs. All later runs of the same shape must have their bits."""
        for shape in ((2, 1), (1, 2)):
            number = self.train(shape)
            self.c.wait_job(number, "succeeded", timeout=120)
            self.whole[shape] = (number, final_bits(self.made[self.acknowledged[number]].out))
            assert self.whole[shape][1], "the undisturbed run left no parameters"

    def open(self):
        return [number for number in self.acknowledged if number not in self.ended]

    def any(self):
        return self.dice.choice((self.command, self.train))()

    def top_up(self):
        for _ in range(OPEN_MOST - len(self.open())):
            if self.any() is None:
                return  # the coordinator does not answer; the next call tries again

    # ---- looking

    def status(self, number):
        """Returns None if the coordinator does not answer now."""
        began = time.monotonic()
        done = self.ddpctl("status", number, "-o", "json")
        self.slow = max(self.slow, time.monotonic() - began)
        if done.code != 0 and "no job" in done.err:
            return {"state": "unknown"}
        return done.json() if done.code == 0 else None

    def look(self):
        now = time.monotonic()
        for number in self.open():
            status = self.status(number)
            if status is None:
                continue
            if status["state"] in ENDED:
                self.ended[number] = status
                continue
            shows = (status["state"], status.get("generation"), (status.get("progress") or {}).get("step"))
            if number not in self.seen or self.seen[number][0] != shows or status["state"] == "queued":
                self.seen[number] = (shows, now)
            elif now - self.seen[number][1] > STILL_S and number not in self.hanging:
                self.hanging.add(number)
                print("hangs: job %d: %s\n%s" % (number, shows, self.c.describe(number)))

    def settle(self, seconds):
        """All faults are over. Waits until all unfinished jobs have ended."""
        def over():
            self.look()
            return not self.open()
        try:
            wait_for(over, "open jobs", seconds)
        except Timeout:
            for number in self.open():
                self.hanging.add(number)
                print("not ended: job %d\n%s" % (number, self.c.describe(number)))

    def spoil_bits(self):
        name = next(job.name for job in self.jobs_ended() if job.shape)
        path, = glob.glob("%s/step-%d-g*/model.safetensors" % (self.made[name].out, STEPS))
        with open(path, "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)[0]
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last ^ 1]))

    def spoil_output(self):
        number = next(n for n in self.ended if not self.made[self.acknowledged[n]].shape)
        for path in glob.glob("%s/logs-*/%d/generation_*/*/*/stdout.log" % (self.c.dir, number)):
            os.truncate(path, 0)

    def jobs_ended(self):
        return [self.made[self.acknowledged[number]] for number in self.ended]

    # ---- judging

    def judge(self):
        found = collections.Counter({"lost": 0, "doubled": 0, "wrong bits": 0, "silent losses": 0})
        listed = json.loads(self.c.ddpctl("status", "--all", "-o", "json").out)["jobs"]
        names = collections.Counter(job["name"] for job in listed)
        known = {job["job"]: job["name"] for job in listed}
        for number, name in self.acknowledged.items():
            if known.get(number) != name:
                self.complain(found, "lost", number, "is not among the coordinator's jobs")
        for name, count in names.items():
            if count > 1:
                self.complain(found, "doubled", name, "was made %d times" % count)
        overlap = os.path.join(self.c.dir, "overlap")
        if os.path.exists(overlap):
            with open(overlap) as f:
                self.complain(found, "doubled", "a rank", f.read())
        for number, status in self.ended.items():
            self.judge_job(found, number, status, self.made[self.acknowledged[number]])
        found["hangs"] = len(self.hanging)
        return found

    def complain(self, found, what, who, why):
        found[what] += 1
        print("%s: job %s: %s" % (what, who, why), flush=True)

    def judge_job(self, found, number, status, job):
        if status["state"] != "succeeded":
            self.complain(found, "lost", number, "%s: %s\n%s" % (status["state"], status["reason"], self.c.describe(number)))
            return
        events = self.c.events(number)
        told = [event for event in events if event["what"] in ("generation_closed", "generation_drained")]
        if len(told) < status["generation"] - 1:
            self.complain(found, "silent losses", number, "generation %d, %d of the ends before it are told:\n%s" % (
                status["generation"], len(told), self.c.ddpctl("events", number).out))
        if job.shape:
            bits = final_bits(job.out)
            if bits is None:
                self.complain(found, "silent losses", number, "succeeded, its last snapshot is not there")
            elif bits != self.whole[job.shape][1]:
                self.complain(found, "wrong bits", number, "parameters differ from an undisturbed run's")
            elif "differ at" in self.c.ddpctl("verify", self.whole[job.shape][0], number, check=False).out:
                self.complain(found, "wrong bits", number, "digests differ from an undisturbed run's")
        else:
            said = sorted(self.c.logs(number).splitlines())
            if said != sorted("rank %d did %d steps" % (rank, job.length) for rank in range(job.ranks)):
                self.complain(found, "silent losses", number, "succeeded, its output is %r" % said)

    def summary(self):
        yield "jobs acknowledged", len(self.acknowledged)
        yield "jobs refused", self.refused
        yield "restarts", sum(status.get("restarts_used", 0) for status in self.ended.values())
        yield "longest ddpctl status", "%.1f s" % self.slow
