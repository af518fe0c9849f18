"""Nodes that can be lost (network namespaces with mounts of their own), and a train job that runs until it is told to end."""
import json
import os
import sqlite3
import time

from lib.cluster import Cluster, Network, wait_for

NOTICED_S = 12
SAVED = 20  # steps between snapshots; a step takes 10 ms

TRAIN = """
nodes: %s
device: cpu
max_restarts: 5
max_replacements: 0
env: {DDP_TEST_STEP_MS: "10"}
train:
  model: {type: mlp, sizes: [20, 32, 1]}
  data: {type: synthetic, samples: 2048}
  optimizer: {type: sgd, lr: 0.001}
  batch: 32
  epochs: 1000000
  snapshot: {dir: %s/%s, every: %d, keep: 3}
"""


class OwnMounts(Network):
    """Nodes that have a directory of their own at <cluster>/out, so they share no snapshots."""

    def enter(self, name):
        own, out = os.path.join(self.base, name + "-out"), os.path.join(self.base, "out")
        for path in (own, out):
            os.makedirs(path, exist_ok=True)
        return super().enter(name)[:-2] + [
            'hostname "$0" && mount --bind "$1" "$2" && shift 2 && exec "$@"', name, own, out]


def make_cluster(name, family=4):
    net = OwnMounts(["n1", "n2"], family=family)
    c = Cluster(agents=0, slots=2, network=net, start=False)
    net.base = c.dir
    try:
        c.start(2)
    except BaseException:
        c.failed = True
        c.close()
        raise
    print("--", name, flush=True)
    return c


def submit_train(c, nodes, directory="out"):
    """Submits a train job that runs until it is cancelled. Returns once the job has committed a snapshot."""
    job = c.submit(c.write("job.yaml", TRAIN % (nodes, c.dir, directory, SAVED)), cwd="/")
    wait_for(lambda: committed_step(c, job) > 2 * SAVED, "snapshots", 40)
    return job


def first_node(c, job):
    """Returns the node of rank 0, and the other node."""
    one = c.job(job)["ranks"][0]["node"]
    return one, "n2" if one == "n1" else "n1"


def node_state(c, node):
    return {n["name"]: n["state"] for n in c.nodes()}[node]


def cut_and_wait(c, node):
    """Pulls the cable. Prints how long it took until the node counted as lost."""
    began = time.monotonic()
    c.network.cut(node)
    wait_for(lambda: node_state(c, node) == "lost", node + " to be lost", NOTICED_S)
    print("   %s noticed as lost after %.1f s" % (node, time.monotonic() - began), flush=True)


def heal_and_wait(c, node):
    c.network.heal(node)
    wait_for(lambda: node_state(c, node) == "alive", node + " to be back", 40)


def committed_step(c, job):
    return (c.job(job)["snapshot"] or {}).get("step", 0)


def in_generation(c, job, generation):
    """Returns {pid: command} of the job's processes of one generation."""
    def of(pid):
        try:
            with open("/proc/%d/environ" % pid, "rb") as f:
                return b"DDP_GENERATION=%d" % generation in f.read().split(b"\0")
        except OSError:
            return False
    return {pid: line for pid, line in c.processes(job).items() if of(pid)}


def commit_marks(path, generation):
    """Returns {step: whether it has COMMITTED.json} of a generation's snapshots in a directory."""
    found = {}
    for name in os.listdir(path):
        if not name.endswith("-g%d" % generation):
            continue
        mark = os.path.join(path, name, "COMMITTED.json")
        found[int(name.split("-")[1])] = os.path.exists(mark)
        if found[int(name.split("-")[1])]:
            with open(mark) as f:
                assert json.load(f)["generation"] == generation, name
    return found


def rows(c, query, *values):
    """Reads the coordinator's database while it runs."""
    db = sqlite3.connect("file:%s?mode=ro" % os.path.join(c.state, "ddp.db"), uri=True, timeout=10)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


def worker_text(c, job, generation, node, name="stderr.log"):
    path = os.path.join(c.dir, "logs-" + node, str(job), "generation_%d" % generation, node, "0", name)
    with open(path, errors="replace") as f:
        return f.read()
