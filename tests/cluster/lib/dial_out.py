"""Sites that only dial out: hosts that drop every connection to them, on a line of 10 Mbit/s, and two further hosts that both reach."""
import subprocess
import sys
import urllib.request

from lib.cluster import Cluster, Daemon, Network, free_port, program, wait_for

# The first packet of a connection from outside. Answers to a site's own connections pass.
NO_WAY_IN = """table inet ddp_site {
  chain in {
    type filter hook input priority 0;
    iifname "eth0" tcp flags & (syn | ack) == syn counter drop
  }
}
"""
LINE = ["root", "tbf", "rate", "10mbit", "burst", "64k", "latency", "100ms"]
SITES = ("site1", "site2")
MIDDLE, OTHER = "box3", "box4"


def shell(args, text=None):
    """Runs a command that sets up the network; without the means for it the test is skipped."""
    done = subprocess.run(args, input=text, text=True, stderr=subprocess.PIPE)
    if done.returncode:
        print("skipped: %s: %s" % (" ".join(args), done.stderr))
        sys.exit(77)


def close_site(network, site):
    """From now on nobody can connect to the host."""
    shell(["nsenter", "--net=/run/netns/" + network.space[site], "nft", "-f", "-"], NO_WAY_IN)


class Sites(Cluster):
    """The coordinator runs on MIDDLE; `relay` is its address there."""

    def __init__(self, relay_on_coordinator):
        network = Network([*SITES, MIDDLE, OTHER])
        super().__init__(start=False, network=network)
        middle = network.address[MIDDLE]
        self.relay = "%s:%d" % (middle, free_port())
        self.coordinator = Daemon(self, "coordinator", [
            program("ddp-coordinator"), "--state", self.state, "--listen", "%s:%d" % (middle, self.port),
            "--metrics", "%s:%d" % (middle, self.metrics_port),
            *(["--relay", self.relay] if relay_on_coordinator else [])], prefix=network.enter(MIDDLE))
        self.host = middle
        try:
            for site in SITES:
                close_site(network, site)
                self.slow_site(site)
            self.start(0)
        except BaseException as e:
            self.failed = not isinstance(e, SystemExit)
            self.close()
            raise

    def slow_site(self, site):
        inside = ["nsenter", "--net=/run/netns/" + self.network.space[site]]
        shell([*inside, "tc", "qdisc", "add", "dev", "eth0", *LINE])
        shell(["tc", "qdisc", "add", "dev", self.network.device[site], *LINE])  # the other direction

    def on(self, host, *args, **options):
        """Types a command on a host."""
        return self.run([*self.network.enter(host), *args], **options)

    def open_site(self, site, *args):
        """The two commands of a site: join the cluster, and start the agent."""
        config = self.dir + "/%s.yaml" % site
        self.on(site, program("ddp-agent"), "join", "%s:%d" % (self.host, self.port), "--token", self.token, "--config", config,
                "--node", site, "--user", "root", check=True)
        with open(config, "a") as f:
            f.write("".join("%s: %s\n" % item for item in {
                "state": self.agent_state(site), "log_dir": self.dir + "/logs-" + site, "slots": self.slots}.items()))
            f.write("env: {DDP_TEST_ID: '%s'}\n" % self.id)
        self.agents[site] = Daemon(self, site, [program("ddp-agent"), "--config", config, *args],
                                   prefix=self.network.enter(site)).start()

    def metric(self, name):
        """Sums the metric's lines of /metrics."""
        with urllib.request.urlopen("http://%s:%d/metrics" % (self.host, self.metrics_port), timeout=20) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    def reach(self, host, port):
        """Whether a TCP connection from one site to the port of another comes about."""
        probe = "import socket; socket.create_connection(('%s', %d), 2)" % (self.network.address[host], port)
        other = SITES[SITES[0] == host]
        return self.on(other, sys.executable, "-c", probe).code == 0

    def wait_metric(self, name, least):
        wait_for(lambda: self.metric(name) >= least, lambda: "%s to reach %d, it is %d" % (name, least, self.metric(name)), 60)
