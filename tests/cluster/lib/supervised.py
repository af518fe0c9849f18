"""Drives a real ddp-supervisor over its control socket, as an agent does."""
import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("DDP_BIN", os.path.join(os.path.dirname(__file__), "../../../build/bin"))
OWNER = os.urandom(8).hex()  # marks the processes of this test run
DEADLINE = 30.0


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000000


def wait_for(what, condition, deadline=DEADLINE):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("gave up waiting for " + what)
        time.sleep(0.01)


def marked_processes(spawn_id=None):
    """Returns {pid: command} of the live processes of this test run, or of one spawn."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as f:
                env = f.read().split(b"\0")
            with open(f"/proc/{name}/stat") as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
            with open(f"/proc/{name}/cmdline", "rb") as f:
                command = f.read()
        except OSError:
            continue
        if state in "ZX" or b"DDP_AGENT_ID=" + OWNER.encode() not in env:
            continue
        if spawn_id is None or b"DDP_SPAWN_ID=" + spawn_id.encode() in env:
            found[int(name)] = command
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Supervisor:
    def __init__(self, root=None, job=7, node="box1", attached=False, wrapper=(), stderr=None):
        self.root = root or tempfile.mkdtemp(prefix="ddp-supervisor-test-")
        if root is None:
            atexit.register(shutil.rmtree, self.root, True)
        self.job, self.node = job, node
        self.dir = f"{self.root}/run/{job}"
        self.log_dir = f"{self.root}/log/{job}"
        self.facts, self.reports, self.hello, self.synced = {}, [], None, False
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for s in (ours, theirs):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        theirs.setblocking(False)
        args = [*wrapper, f"{BIN}/ddp-supervisor", "--dir", self.dir, "--job", str(job), "--node", node,
                "--control-fd", str(theirs.fileno())] + (["--attached"] if attached else [])
        self.process = subprocess.Popen(args, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=stderr)
        atexit.register(self.end)
        theirs.close()
        self.socket = ours

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def connect(self):
        """Drops the connection and comes back as a new agent."""
        self.socket.close()
        self.facts, self.reports, self.hello, self.synced = {}, [], None, False

        def attempt():
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                here = os.getcwd()
                os.chdir(self.dir)
                try:
                    s.connect("control.sock")
                finally:
                    os.chdir(here)
                return s
            except OSError:
                s.close()
                return None

        self.socket = wait_for("the control socket", attempt)

    def send(self, **message):
        self.socket.send(json.dumps(message).encode())

    def start(self, spawn, argv, env=None, owner=OWNER, **more):
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(env or {}), "DDP_AGENT_ID": owner,
               "DDP_SPAWN_ID": f"{self.job}.{self.node}.{spawn}"}
        order = dict(op="start", spawn=spawn, generation=1, rank=0, local_rank=0,
                     id=f"{self.job}.{self.node}.{spawn}", owner=owner, argv=argv,
                     env=[f"{k}={v}" for k, v in env.items()], workdir=self.root,
                     log_dir=f"{self.log_dir}/generation_1/{self.node}/{spawn}", master_port=0, native=False,
                     lease_sent=boot_ms(), lease_ms=600000, grace_ms=5000)
        order.update(more)
        self.send(**order)
        return order

    def pump(self, timeout=0.05):
        """Reads what has arrived. Returns False when the supervisor is gone."""
        self.socket.settimeout(timeout)
        try:
            data = self.socket.recv(1 << 20)
        except (TimeoutError, socket.timeout, BlockingIOError):
            return True
        except ConnectionError:
            return False
        if not data:
            return False
        m = json.loads(data)
        if m["op"] == "hello":
            self.hello = m
        elif m["op"] == "fact":
            self.facts[m["spawn"]] = m
        elif m["op"] == "report":
            self.reports.append(m)
        elif m["op"] == "synced":
            self.synced = True
        return True

    def until(self, what, condition, deadline=DEADLINE):
        end = time.monotonic() + deadline
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"gave up waiting for {what}; facts: {self.facts}")
            if not self.pump():
                assert condition(), f"the supervisor ended while waiting for {what}; facts: {self.facts}"
                return

    def state(self, spawn):
        return self.facts.get(spawn, {}).get("state")

    def exited(self, spawn, deadline=DEADLINE):
        self.until(f"spawn {spawn} to exit", lambda: self.state(spawn) == "exited", deadline)
        return self.facts[spawn]

    def running(self, spawn):
        self.until(f"spawn {spawn} to run", lambda: self.state(spawn) == "running")
        return self.facts[spawn]

    def log(self, spawn, name="stdout.log"):
        with open(f"{self.log_dir}/generation_1/{self.node}/{spawn}/{name}") as f:
            return f.read()


def main(tests):
    """Runs every function of the list, or those named in the arguments."""
    wanted = sys.argv[1:]
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        test()
        print("ok", test.__name__, flush=True)
    left = marked_processes()
    assert not left, f"processes left behind: {left}"
