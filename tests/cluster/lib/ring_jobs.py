"""Jobs of ring.py for the tests of why and stall_timeout."""
import json
import os

from lib.cluster import SOURCE, wait_for

RING = os.path.join(SOURCE, "tests", "cluster", "lib", "ring.py")


def ring(c, *words, procs=3, nodes=1, options=(), extra="", wait=True):
    """Submits ranks that sum around a ring. Returns the job and the directory where they meet. extra: lines of the job file."""
    number = len([n for n in os.listdir(c.dir) if n.startswith("ring-")])
    where = os.path.join(c.dir, "ring-%d" % number)
    os.mkdir(where)
    path = c.write("job-%d.yaml" % number, "name: ring\nnodes: %d\nprocs_per_node: %d\n%scommand: %s\n" % (
        nodes, procs, extra, json.dumps(["/usr/bin/python3", RING, where, *words])))
    job = c.submit(path, *options)
    if wait:
        c.wait_job(job, "running")
        wait_for(lambda: len(c.logs(job).splitlines()) >= 2 * procs * nodes, "the first steps")
    return job, where


def pid_of(where, rank):
    with open(os.path.join(where, "pid.%d" % rank)) as f:
        return int(f.read())


def give_order(where, rank, words):
    """Tells the rank what to do instead of its next step."""
    with open(os.path.join(where, "order"), "w") as f:
        f.write(words)
    os.rename(f.name, os.path.join(where, "do.%d" % rank))


def why(c, job):
    return c.ddpctl("why", job, "-o", "json").json()


def await_verdict(c, job, verdict, rank, timeout=30):
    """Waits until the verdict names the rank. Returns the answer of ddpctl why."""
    seen = {}

    def named():
        seen.update(why(c, job))
        return seen["verdict"] == verdict and seen["rank"] == rank
    wait_for(named, lambda: "rank %s named as %s, said: %s" % (
        rank, verdict, {k: v for k, v in seen.items() if k != "probe"}), timeout)
    return seen
