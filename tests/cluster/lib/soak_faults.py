"""The faults of tests/cluster/soak, one after the other, and an attacker that works all the time."""
import collections
import contextlib
import json
import os
import random
import subprocess
import threading
import time
from signal import SIGCONT, SIGKILL, SIGSTOP

from lib.cluster import wait_for

TESTS = os.path.join(os.environ.get("DDP_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..",
                                                             "build")), "tests")


def let_pass(seconds):
    end = time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= end, "the time to pass", seconds + 30)


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Faults:
    def __init__(self, cluster, hosts, dice, meanwhile):
        self.c, self.hosts, self.dice, self.meanwhile = cluster, hosts, dice, meanwhile
        self.done = collections.Counter()
        self.crashes = 0
        self.cut = set()
        self.kinds = [(self.kill_daemons, 4), (self.kill_process, 4), (self.stop_daemon, 2), (self.stop_process, 2),
                      (self.pull_cable, 3), (self.fill_disk, 2), (self.nothing, 2)]

    def one(self):
        kinds, weights = zip(*self.kinds)
        kind, = self.dice.choices(kinds, weights)
        kind()

    def note(self, name):
        self.done[name] += 1
        print("%s %s" % (time.strftime("%H:%M:%S"), name), flush=True)

    def summary(self):
        yield "faults", "%d: %s" % (sum(self.done.values()),
                                    ", ".join("%s %d" % item for item in sorted(self.done.items())))

    def daemons(self):
        return [self.c.coordinator, *self.c.agents.values()]

    def restart_what_ended(self):
        """Starts daemons that have ended. One that this test did not kill has crashed, and is counted."""
        for daemon in self.daemons():
            if not daemon.running():
                self.crashes += 1
                print("%s ended by itself with %s:\n%s" % (daemon.name, daemon.process.returncode, daemon.text()[-3000:]))
                daemon.start()

    def processes(self, *words):
        return sorted(pid for pid, line in self.c.processes().items() if any(word in line for word in words))

    def nothing(self):
        let_pass(self.dice.uniform(0.5, 2))

    def kill_daemons(self):
        chosen = self.dice.choice(([self.c.coordinator], [self.dice.choice(list(self.c.agents.values()))], self.daemons()))
        self.note("kill " + ("all daemons" if len(chosen) > 1 else chosen[0].name))
        for daemon in chosen:
            daemon.signal(SIGKILL)
        for daemon in chosen:
            daemon.kill()
        let_pass(self.dice.choice((0, 0, 0, 1, 4)))
        self.dice.shuffle(chosen)
        for daemon in chosen:
            daemon.start()

    def kill_process(self):
        what = self.dice.choice(("supervisor", "worker"))
        found = self.processes("ddp-supervisor") if what == "supervisor" else self.processes("ddp-trainer", "run.sh")
        if found:
            self.note("kill " + what)
            send(self.dice.choice(found), SIGKILL)
        let_pass(self.dice.uniform(0, 2))

    def stop_daemon(self):
        daemon = self.dice.choice((self.c.coordinator, self.dice.choice(list(self.c.agents.values()))))
        self.note("stop " + daemon.name)
        self.hold(daemon)

    def hold(self, daemon):
        """Stops a daemon, at times for longer than the silence after which a node is lost (9 s)."""
        daemon.signal(SIGSTOP)
        let_pass(self.dice.choice((0.5, 1, 1, 3, 5, 12)))
        daemon.signal(SIGCONT)

    def stop_process(self):
        """Stops a process for less than any lease, because a stopped supervisor cannot end its workers in time."""
        found = self.processes("ddp-supervisor", "ddp-trainer", "run.sh")
        if not found:
            return
        pid = self.dice.choice(found)
        self.note("stop process")
        send(pid, SIGSTOP)
        let_pass(self.dice.uniform(0.5, 3))
        send(pid, SIGCONT)

    def pull_cable(self):
        host = self.dice.choice(self.hosts)
        self.note("cut " + host)
        self.c.network.cut(host)
        self.cut.add(host)
        let_pass(self.dice.choice((0.5, 1, 3, 6, 14)))
        self.heal_all()

    def heal_all(self):
        for host in sorted(self.cut):
            self.c.network.heal(host)
        self.cut.clear()

    def fill_disk(self):
        """Fills the disk. Jobs are submitted meanwhile, and at times the coordinator has to start on the full disk."""
        dies = self.dice.random() < 0.4
        self.note("disk full" + (", kill coordinator" if dies else ""))
        filler = os.path.join(self.c.state, "filler")
        try:
            with open(filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
                while True:
                    f.write(b"\0" * 65536)
            self.meanwhile()
            if dies:
                self.c.coordinator.kill()
                self.c.coordinator.start()
            let_pass(self.dice.uniform(2, 6))
        finally:
            os.unlink(filler)


class Attacker:
    """Attacks the coordinator from a namespace of its own, with one attack after the other, until it is stopped."""

    def __init__(self, cluster, host, dice):
        self.c, self.host = cluster, host
        self.seed = dice.getrandbits(32)
        self.over, self.failed = threading.Event(), None
        self.connections = self.streams = self.attacks = self.peak_kb = 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.over.set()
        self.thread.join()
        assert not self.failed, self.failed

    def attack(self, dice):
        target = "%s:%d" % (self.c.host, self.c.port)
        if dice.random() < 0.6:
            return ["flood", target, str(dice.choice((200, 1000, 3000))), str(dice.choice((1, 2))), "--say",
                    dice.choice(("silent", "preface", "half")), "--hold", str(dice.choice((1, 4))),
                    *dice.choice(([], ["--close"]))]
        return ["reset", target, dice.choice(("0.5", "2", "6")), dice.choice(("1", "8")), "--seconds", "10",
                *dice.choice(([], ["--compact"]))]

    def run(self):
        dice = random.Random(self.seed)
        enter = ["nsenter", "--net=/run/netns/" + self.c.network.space[self.host]]
        while not self.over.wait(dice.uniform(0.2, 2)):
            name, *words = self.attack(dice)
            done = subprocess.run([*enter, os.path.join(TESTS, name), *words], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
            if done.returncode:
                self.failed = done.stderr
                return
            said = json.loads(done.stdout.splitlines()[-1])
            self.attacks += 1
            self.connections += said.get("connected", 0)
            self.streams += said.get("streams", 0)
            self.note_memory()

    def note_memory(self):
        with contextlib.suppress(OSError, StopIteration):  # the coordinator may be dead at this moment
            with open("/proc/%d/status" % self.c.coordinator.pid) as f:
                self.peak_kb = max(self.peak_kb, next(int(line.split()[1]) for line in f if line.startswith("VmHWM")))

    def summary(self):
        yield "attacks", "%d: %d connections, %d streams reset; the coordinator's memory at most %d MB" % (
            self.attacks, self.connections, self.streams, self.peak_kb / 1024)
