"""A real cluster for tests: daemons as child processes, conditions with deadlines, and no process left at the end.

    #!/usr/bin/python3
    from lib.cluster import Cluster
    with Cluster(agents=2) as c:
        job = c.submit("--nodes", "2", "--", "sh", "-c", "echo hello")
        c.wait_job(job, "succeeded")
        assert c.logs(job) == "hello\nhello\n"

Every process of a test has DDP_TEST_ID in its environment, the supervisors and workers included. At the end every process that still
has this test's value is killed by its pid. Tests wait for conditions only (wait_for), never for a span of time. Ports are below 32768.
DDP_BIN is the programs' directory; DDP_TEST_KEEP=1 keeps the directory of a failed test.
"""
import fcntl
import json
import os
import random
import shutil
import signal
from signal import SIGKILL, SIGTERM
import socket
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("DDP_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
BIN = os.environ.get("DDP_BIN", os.path.join(SOURCE, "build", "bin"))
# Sanitizer builds are several times slower; DDP_TEST_SLOW multiplies every deadline.
SLOW = float(os.environ.get("DDP_TEST_SLOW", "1"))

ENDED = {"succeeded", "failed", "cancelled"}


def program(name):
    return os.path.join(BIN, name)


class Timeout(AssertionError):
    pass


def wait_for(condition, what, timeout=20.0, began=None):
    """Polls until condition() is true and returns its value. Raises Timeout, which names `what`, after `timeout` seconds. `began`: a time
    of time.monotonic() from which they count instead of from now."""
    end = (began or time.monotonic()) + timeout * SLOW
    pause = 0.005
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Timeout("waited %.0f s for: %s" % (timeout * SLOW, what() if callable(what) else what))
        time.sleep(pause)  # polling interval
        pause = min(pause * 1.5, 0.1)


_port_locks = []


def lock_port(name):
    """Whether no other test of this machine has this lock. The lock is kept until this process ends."""
    lock_dir = os.path.join(tempfile.gettempdir(), "ddp-test-ports")
    os.makedirs(lock_dir, exist_ok=True)
    fd = os.open(os.path.join(lock_dir, name), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return False
    _port_locks.append(fd)
    return True


def free_port(first=20000, last=29000):
    """Returns a port below 32768 that nothing listens on and that no other test uses."""
    for _ in range(500):
        port = random.randint(first, last)
        if not lock_port(str(port)):
            continue
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise RuntimeError("no free port between %d and %d" % (first, last))


def worker_ports():
    """Returns 40 ports, "FIRST-LAST", for a node's workers. No other test uses them, and no `ddpctl run` (29700-30699)."""
    blocks = list(range(30700, 32740, 40))
    random.shuffle(blocks)
    first = next((first for first in blocks if lock_port("workers-%d" % first)), blocks[0])
    return "%d-%d" % (first, first + 39)


def alive(pid):
    """Whether the process lives. A zombie does not: a container's first process may reap late."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_with(entry):
    """Returns {pid: command line} of living processes whose environment has the entry, for example "DDP_JOB_ID=7"."""
    wanted = entry.encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as f:
                if wanted not in f.read().split(b"\0"):
                    continue
            with open("/proc/%s/cmdline" % name, "rb") as f:
                line = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if int(name) != os.getpid() and alive(int(name)):
            found[int(name)] = line
    return found


class Result:
    """The result of a finished command: code (negative: signal), out, err."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    def __repr__(self):
        return "%s: exit %s\n--- stdout\n%s--- stderr\n%s" % (" ".join(self.args), self.code, self.out, self.err)

    def json(self):
        return json.loads(self.out)


class Daemon:
    """A coordinator or an agent that this test started. It can be killed and started again with the same arguments."""

    def __init__(self, cluster, name, args, prefix=()):
        self.cluster, self.name, self.args, self.prefix = cluster, name, list(args), list(prefix)
        self.process = None
        self.log = os.path.join(cluster.dir, name + ".log")

    def start(self):
        assert not self.running(), self.name + " runs already"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.prefix + self.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.cluster.env, cwd=self.cluster.dir, start_new_session=True)
        return self

    def running(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid  # nsenter and unshare exec in place

    def signal(self, number):
        os.kill(self.pid, number)

    def kill(self, number=int(SIGKILL), timeout=20.0):
        """Sends the signal and waits for the end; returns the exit code."""
        if self.running():
            self.signal(number)
            wait_for(lambda: self.process.poll() is not None, "%s to end on signal %d" % (self.name, number), timeout)
        return self.process.returncode

    def stop(self, timeout=20.0):
        return self.kill(int(SIGTERM), timeout)

    def text(self):
        with open(self.log, errors="replace") as f:
            return f.read()


class Cluster:
    def __init__(self, agents=1, slots=2, coordinator_args=(), agent_args=(), network=None, start=True, config=""):
        """config: lines for coordinator.yaml, for example "settle: 1s"."""
        self.id = "%x" % random.getrandbits(64)
        self.dir = tempfile.mkdtemp(prefix="ddp-test-")
        # Also when the tests themselves run inside of a batch system's job.
        strange = ("DDP_", "PET_", "SLURM_", "PBS_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(strange) or k == "DDP_LOG"}
        self.env["DDP_TEST_ID"] = self.id
        self.env["HOME"] = self.dir
        self.env.pop("XDG_STATE_HOME", None)
        self.env.pop("XDG_CONFIG_HOME", None)
        self.slots, self.agent_args, self.network, self.config = slots, list(agent_args), network, config
        self.host = network.host if network else "127.0.0.1"
        self.port, self.metrics_port = free_port(), free_port()
        self.state = os.path.join(self.dir, "coordinator")
        self.token = os.path.join(self.state, "token")
        self.coordinator = Daemon(self, "coordinator", [
            program("ddp-coordinator"), "--state", self.state, "--listen", "%s:%d" % (self.host, self.port),
            "--metrics", "%s:%d" % (self.host, self.metrics_port), *coordinator_args])
        self.agents = {}
        self.started = []  # further processes, killed at the end
        self.failed = False
        if start:
            try:
                self.start(agents)
            except BaseException:
                self.failed = True
                self.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.failed = kind is not None and kind is not SystemExit
        self.close()

    # ---- daemons

    def start(self, agents=1):
        self.run([program("ddp-coordinator"), "init", "--state", self.state], check=True)
        if self.config:
            with open(os.path.join(self.state, "coordinator.yaml"), "a") as f:
                f.write(self.config + "\n")
        self.start_coordinator()
        for number in range(1, agents + 1):
            self.start_agent("n%d" % number)
        self.wait_nodes(agents)

    def start_coordinator(self, wait=True):
        self.coordinator.start()
        if wait:
            wait_for(self.answers, lambda: "the coordinator to answer\n" + self.coordinator.text()[-3000:])
        return self.coordinator

    def answers(self):
        if not self.coordinator.running():
            raise AssertionError("the coordinator ended with %s:\n%s" % (self.coordinator.process.returncode,
                                                                         self.coordinator.text()[-3000:]))
        return self.ddpctl("version", "-o", "json", check=False).code == 0

    def agent_state(self, name):
        return os.path.join(self.dir, name)

    def start_agent(self, name, slots=None, args=()):
        """Starts the agent of a node, or starts it again after a kill."""
        if name not in self.agents:
            self.agents[name] = Daemon(self, name, [
                program("ddp-agent"), "--state", self.agent_state(name), "--node", name,
                "--coordinator", "%s:%d" % (self.host, self.port), "--token", self.token,
                "--log-dir", os.path.join(self.dir, "logs-" + name), "--ports", worker_ports(),
                "--slots", str(slots if slots is not None else self.slots), "--config", self.agent_config(),
                *(["--user", "root"] if os.geteuid() == 0 else []), *self.agent_args, *args],
                prefix=self.network.enter(name) if self.network else ())
        return self.agents[name].start()

    def on_node(self, name, *command):
        """Runs a command in the mount namespace of the node's agent."""
        subprocess.run(["nsenter", "--mount", "--target", str(self.agents[name].pid), *command], check=True)

    def agent_config(self):
        """Of their agent's environment, jobs see only the variables in this file. Sanitizers, fault points, emulated GPUs
        and close() need them."""
        path = os.path.join(self.dir, "agent-defaults.yaml")
        with open(path + ".new", "w") as f:
            json.dump({"env": {k: v for k, v in self.env.items()
                               if k.startswith(("DDP_", "CUDA_")) or k.endswith("SAN_OPTIONS")}}, f)
        os.replace(path + ".new", path)  # an agent that has just started may be reading it
        return path

    def wait_nodes(self, count, state="alive", timeout=20.0):
        def ready():
            return len([n for n in self.nodes() if n["state"] == state]) == count
        wait_for(ready, lambda: "%d nodes to be %s: %s" % (count, state, self.nodes()), timeout)

    def joins(self):
        """How often each agent has joined, by its own log."""
        return {name: agent.text().count("event=joined") for name, agent in self.agents.items()}

    def wait_joins(self, before):
        """Waits until each agent has joined since joins() returned `before`. After the coordinator has started again, wait_nodes() does
        not wait for the agents: its records show the nodes as they were."""
        wait_for(lambda: all(count > before[name] for name, count in self.joins().items()), "the agents to join again")

    # ---- commands

    def client_env(self):
        return dict(self.env, DDP_COORDINATOR="unix:" + os.path.join(self.state, "coordinator.sock"))

    def run(self, args, check=False, timeout=60.0, env=None, stdin=None, cwd=None):
        done = subprocess.run(args, stdin=subprocess.DEVNULL if stdin is None else None, input=stdin,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env or self.env, text=True,
                              errors="replace", timeout=timeout * SLOW, cwd=cwd or self.dir)
        result = Result([str(a) for a in args], done.returncode, done.stdout, done.stderr)
        if check:
            assert result.code == 0, result
        return result

    def ddpctl(self, *args, check=True, timeout=60.0, stdin=None, cwd=None, env=None):
        return self.run([program("ddpctl"), *map(str, args)], check, timeout, env or self.client_env(), stdin, cwd)

    def popen(self, *args, **options):
        """Starts ddpctl in the background. It is killed at the end if it still runs."""
        options.setdefault("env", self.client_env())
        options.setdefault("cwd", self.dir)
        options.setdefault("stdin", subprocess.DEVNULL)
        process = subprocess.Popen([program("ddpctl"), *map(str, args)], **options)
        self.started.append(process)
        return process

    def submit(self, *args, cwd=None):
        """Runs ddpctl submit. Returns the job's number."""
        return self.ddpctl("submit", "-o", "json", *args, cwd=cwd).json()["job"]

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def job(self, job):
        return self.ddpctl("status", job, "-o", "json").json()

    def nodes(self):
        return self.ddpctl("nodes", "-o", "json").json()["nodes"]

    def events(self, job):
        return self.ddpctl("events", job, "-o", "json").json()["events"]

    def logs(self, job, *args):
        """Standard output only, unless args say otherwise."""
        streams = () if {"--stdout", "--stderr", "--both"} & set(args) else ("--stdout",)
        return self.ddpctl("logs", job, *streams, *args).out

    def wait_job(self, job, *states, timeout=30.0):
        """Waits until the job is in one of the states. Fails at once if the job ends in another state."""
        last, began = {}, time.monotonic()
        if set(states) <= ENDED:
            # One `ddpctl wait` takes no processor time meanwhile; ten calls of `ddpctl status` a second take a sixth of a core. It would
            # wait for a coordinator that is gone.
            waiting = self.popen("wait", job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while waiting.poll() is None and self.coordinator.running() and time.monotonic() < began + timeout * SLOW:
                try:
                    waiting.wait(1)
                except subprocess.TimeoutExpired:
                    pass
            waiting.kill()
            waiting.wait()

        def reached():
            last.update(self.job(job))
            if last["state"] in states:
                return True
            if last["state"] in ENDED:
                raise AssertionError("job %s ended %s (%s), not %s\n%s" % (
                    job, last["state"], last["reason"], "/".join(states), self.describe(job)))
            return False
        wait_for(reached, lambda: "job %s to be %s, it is %s (%s)\n%s" % (
            job, "/".join(states), last.get("state"), last.get("reason"), self.describe(job)), timeout, began)
        return last

    def describe(self, job):
        events = self.ddpctl("events", job, check=False)
        return events.out + events.err + "".join(
            "--- %s\n%s" % (d.name, d.text()[-2000:]) for d in [self.coordinator, *self.agents.values()])

    # ---- what runs

    def processes(self, job=None):
        """Returns {pid: command} of all processes of this cluster, or of a job's workers and their children."""
        mine = processes_with("DDP_TEST_ID=" + self.id)
        if job is not None:
            of_job = processes_with("DDP_JOB_ID=%d" % job)
            mine = {pid: line for pid, line in mine.items() if pid in of_job}
        return mine

    def stop_new_worker(self, job, before):
        """Waits for a new process of the job and stops it. That is before it joins unless this test is slow: so it looks without
        a pause."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for pid, line in self.processes(job).items():
                if "ddp-trainer" in line and pid not in before:
                    os.kill(pid, signal.SIGSTOP)
                    return pid
        raise AssertionError("no new process\n" + self.describe(job))

    def wait_gone(self, job=None, timeout=20.0):
        wait_for(lambda: not self.processes(job), lambda: "processes to be gone: %s" % self.processes(job), timeout)

    def close(self):
        if self.failed:
            for daemon in [self.coordinator, *self.agents.values()]:
                if os.path.exists(daemon.log):
                    sys.stderr.write("--- %s.log\n%s" % (daemon.name, daemon.text()[-6000:]))
        end = time.monotonic() + 10
        while time.monotonic() < end:  # a supervisor may be starting a worker while we look
            left = self.processes()
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                    os.kill(pid, signal.SIGCONT)
                except OSError:
                    pass
            time.sleep(0.02)
        for process in [self.coordinator.process, *[a.process for a in self.agents.values()], *self.started]:
            if process is not None:
                process.wait(timeout=10)
        if self.network:
            self.network.close()
        if self.failed and os.environ.get("DDP_TEST_KEEP"):
            sys.stderr.write("kept %s\n" % self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)


class Network:
    """Nodes as network namespaces on a bridge of this machine, each with its own host name and /tmp. Their processes are visible
    from outside. Needs root. cut(node) and heal(node) pull and plug the node's cable."""

    def __init__(self, names, family=4):
        v4 = "10.%d.%d." % (random.randint(64, 250), random.randint(0, 255))
        self.net = v4 if family == 4 else "fd00:ddb:%x::" % random.getrandbits(16)
        self.mask = ["/24"] if family == 4 else ["/64", "nodad"]
        self.tag = "%05x" % random.getrandbits(20)
        self.bridge = "ddpb" + self.tag
        self.host = self.net + "254" if family == 4 else "[%sfe]" % self.net
        self.address, self.device, self.space = {}, {}, {}
        try:
            self.ip("link", "add", self.bridge, "type", "bridge")
            self.add_address(self.host.strip("[]"), self.bridge)
            self.ip("link", "set", self.bridge, "up")
            for number, name in enumerate(names, 1):
                self.add(name, number, "%s%d" % (self.net, number))
        except BaseException:
            self.close()
            raise

    def add(self, name, number, address):
        self.space[name] = "ddp%s-%s" % (self.tag, name)
        self.device[name] = "ddp%sv%d" % (self.tag, number)
        self.address[name] = address
        self.ip("netns", "add", self.space[name])
        self.ip("link", "add", self.device[name], "type", "veth", "peer", "name", "eth0", "netns", self.space[name])
        self.ip("link", "set", self.device[name], "master", self.bridge, "up")
        self.add_address(address, "eth0", "-n", self.space[name])
        self.ip("-n", self.space[name], "link", "set", "eth0", "up")
        self.ip("-n", self.space[name], "link", "set", "lo", "up")

    def add_address(self, address, device, *where):
        self.ip(*where, "addr", "add", address + self.mask[0], "dev", device, *self.mask[1:])

    @staticmethod
    def ip(*args):
        subprocess.run(["ip", *args], check=True, stderr=subprocess.PIPE)

    def enter(self, name):
        """Returns the command prefix that runs a program on the node, in its network, host name and mounts."""
        return ["nsenter", "--net=/run/netns/" + self.space[name], "unshare", "--uts", "--mount", "--propagation",
                "private", "sh", "-c", 'hostname "$0" && exec "$@"', name]

    def cut(self, name):
        self.ip("link", "set", self.device[name], "nomaster")

    def heal(self, name):
        self.ip("link", "set", self.device[name], "master", self.bridge)

    def limit(self, mbit, names=None):
        """Limits what the nodes send and receive; default: all nodes. Returns what tc says if it cannot; else None."""
        rate = ["root", "tbf", "rate", "%dmbit" % mbit, "burst", "64k", "latency", "50ms"]
        for name in names or self.space:
            inside = ["nsenter", "--net=/run/netns/" + self.space[name]]
            for where, device in ((inside, "eth0"), ([], self.device[name])):
                done = subprocess.run([*where, "tc", "qdisc", "replace", "dev", device, *rate], text=True, stderr=subprocess.PIPE)
                if done.returncode:
                    return done.stderr.strip()
        return None

    def close(self):
        for device in self.device.values():  # the kernel would remove it with its namespace, but later
            subprocess.run(["ip", "link", "del", device], stderr=subprocess.DEVNULL)
        for space in self.space.values():
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)
        subprocess.run(["ip", "link", "del", self.bridge], stderr=subprocess.DEVNULL)


def need_root():
    """Skips the test (exit 77) where network namespaces cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("skipped: network namespaces need root and iproute2")
        sys.exit(77)
    # In a chroot, / is often not a mount point. Then no mount namespace can be made.
    probe = subprocess.run(["unshare", "--net", "--mount", "--propagation", "private", "true"], stderr=subprocess.PIPE,
                           text=True)
    if probe.returncode:
        print("skipped: " + probe.stderr.strip())
        sys.exit(77)
