"""Hosts of a run: network namespaces with names of their own, and `ddpctl run` typed on each."""
import os
import subprocess
import sys

from lib.cluster import Cluster, Network, free_port, program, wait_for

TOKEN = "00112233445566778899aabbccddeeff" * 2


class Run:
    """A ddpctl run in the background, with its output in files."""

    def __init__(self, meeting, host, process, out, err):
        self.meeting, self.host, self.process, self.out_path, self.err_path = meeting, host, process, out, err

    @property
    def out(self):
        with open(self.out_path, errors="replace") as f:
            return f.read()

    @property
    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def ended(self):
        return self.process.poll() is not None

    def wait(self, code=None, timeout=40):
        wait_for(self.ended, lambda: "ddpctl on %s to end\n%r" % (self.host, self), timeout)
        assert code is None or self.process.returncode == code, (code, self)
        return self

    def wait_for(self, text, timeout=30):
        def said():
            assert text in self.out + self.err or not self.ended(), "no %r\n%r" % (text, self)
            return text in self.out + self.err
        wait_for(said, lambda: "%r from %s\n%r" % (text, self.host, self.meeting.runs), timeout)
        return self

    def __repr__(self):
        return "%s: exit %s\n--- stdout\n%s--- stderr\n%s" % (self.host, self.process.poll(), self.out, self.err)


class Meeting(Cluster):
    def __init__(self, names=("box1", "box2"), family=4, token=TOKEN):
        super().__init__(start=False, network=Network(names, family))
        self.runs = []
        self.endpoint_host = self.network.address[names[0]]
        self.port = free_port()
        self.env["TMPDIR"] = os.path.join(self.dir, "tmp")
        os.mkdir(self.env["TMPDIR"])
        if token:
            self.env["DDP_TOKEN"] = token
        self.names = {name: self.write_names(name, {}) for name in names}

    def write_names(self, host, own):
        """Writes the host's /etc/hosts: the other hosts' addresses and extra names for some of them."""
        known = dict({name: self.network.address[name] for name in self.network.address}, **own)
        return self.write("hosts-" + host, "127.0.0.1 localhost\n" + "".join(
            "%s %s\n" % (address, name) for name, address in known.items()))

    def endpoint(self, host=None):
        host = host or self.endpoint_host
        return ("[%s]:%d" if ":" in host else "%s:%d") % (host, self.port)

    def start(self, host, *args, env=None, cwd=None, endpoint=None, meet=True, before=()):
        """Types `ddpctl run --rdzv-endpoint ... ARGS` on a host."""
        where = ["--rdzv-id", "456", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint or self.endpoint()]
        return self.command(host, *before, program("ddpctl"), "run", *(where if meet else []), *map(str, args),
                            env=env, cwd=cwd)

    def command(self, host, *args, env=None, cwd=None):
        """Types any command on a host."""
        number = len(self.runs)
        out, err = (os.path.join(self.dir, "%d.%s.%s" % (number, host, end)) for end in ("out", "err"))
        enter = self.network.enter(host) + ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', self.names[host]]
        with open(out, "w") as o, open(err, "w") as e:
            process = subprocess.Popen([*enter, *args], stdin=subprocess.DEVNULL, stdout=o, stderr=e,
                                       env=dict(self.env, **(env or {})), cwd=cwd or self.dir)
        self.started.append(process)
        self.runs.append(Run(self, host, process, out, err))
        return self.runs[-1]

    def nothing_left(self):
        self.wait_gone()
        left = [name for name in os.listdir(self.env["TMPDIR"]) if name.startswith("ddp-run-")]
        assert not left, left

    def close(self):
        if self.failed:
            sys.stderr.write("".join("%r\n" % run for run in self.runs))
            for name in os.listdir(self.env["TMPDIR"]):
                for daemon in ("ddp-coordinator.log", "ddp-agent.log"):
                    path = os.path.join(self.env["TMPDIR"], name, daemon)
                    if os.path.exists(path):
                        with open(path) as f:
                            sys.stderr.write("--- %s/%s\n%s" % (name, daemon, f.read()[-3000:]))
        super().close()
