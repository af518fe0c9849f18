#!/usr/bin/python3
"""Runs a train job of 2 hosts x 2 ranks on emulated GPUs, summed by the stand-in NCCL; hosts are network namespaces. Kills
one rank with SIGKILL, then all ranks of a host. Each time the killed rank is named as the cause, the others report a lost
peer, one restart is charged, and the job goes on from its last snapshot. On n1 NCCL notices no death, as over NVLink and
shared memory."""
import os
import signal
import sys

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(TESTS, "cluster"))
from lib.cluster import Cluster, Network, need_root, wait_for  # noqa: E402
from lib.lost import committed_step, rows  # noqa: E402

EXIT_PEER_LOST = 75
JOB = """
nodes: 2
procs_per_node: 2
device: auto
max_restarts: 2
max_replacements: 0
train:
  model: {type: mlp, sizes: [20, 16, 1], activation: relu}
  data: {type: synthetic, samples: 512}
  optimizer: {type: sgd, lr: 0.001}
  global_batch: 32
  steps: 1000000
  snapshot: {dir: %s, every: 50, keep: 2}
"""


def make():
    c = Cluster(agents=0, slots=2, network=Network(["n1", "n2"]), start=False)
    c.env.update(CUDA_VISIBLE_DEVICES="0", DDP_STANDIN_NCCL_DIR=c.dir,
                 DDP_CUDA_PLUGIN=os.path.join(os.environ["DDP_BUILD"], "lib", "ddp_emulated", "libddp_cuda.so"))
    try:
        c.start(0)
        for node, fault in (("n1", "unnoticed-death"), ("n2", "")):
            c.env["DDP_STANDIN_NCCL_FAULT"] = fault
            c.start_agent(node)
        c.wait_nodes(2)
    except BaseException:
        c.failed = True
        c.close()
        raise
    return c


def under_way(c, job, generation):
    """Waits until the job has committed a snapshot in that generation. Returns its ranks."""
    def there():
        assert c.job(job)["state"] not in ("failed", "succeeded"), c.describe(job)
        return rows(c, "SELECT 1 FROM snapshot WHERE job = ? AND generation = ?", job, generation)
    wait_for(there, lambda: "a snapshot of generation %d\n%s" % (generation, c.describe(job)), 40)
    ranks = c.job(job)["ranks"]
    with open("/proc/%d/net/unix" % ranks[0]["pid"]) as f:
        assert c.dir + "/nccl-" in f.read(), "NCCL is not what sums"
    return ranks


def words(c, job, generation, rank):
    path = os.path.join(c.dir, "logs-" + rank["node"], str(job), "generation_%d" % generation, rank["node"],
                        str(rank["local_rank"]), "stderr.log")
    with open(path, errors="replace") as f:
        return f.read()


def killed(c, job, generation, chosen):
    """kill -9 while the coordinator is down: the other ranks learn of it only from the group. Returns how the generation
    ended."""
    ranks, before = under_way(c, job, generation), committed_step(c, job)
    victims = [r for r in ranks if chosen(r)]
    survivors = [r for r in ranks if not chosen(r)]
    c.coordinator.signal(signal.SIGSTOP)
    for r in victims:
        os.kill(r["pid"], signal.SIGKILL)
    for r in survivors:
        wait_for(lambda: "peer lost" in words(c, job, generation, r), lambda: words(c, job, generation, r))
    c.coordinator.signal(signal.SIGCONT)
    under_way(c, job, generation + 1)
    assert c.job(job)["restarts_used"] == generation, c.describe(job)
    (source,), = rows(c, "SELECT source_step FROM generation WHERE job = ? AND number = ?", job, generation + 1)
    assert source >= before, (source, before)
    for rank, code, number in rows(c, "SELECT r.rank, s.code, s.signal FROM rank r JOIN spawn s USING(job, spawn) "
                                      "WHERE r.job = ? AND r.generation = ?", job, generation):
        lost = rank in [r["rank"] for r in survivors]
        assert (code, number) == ((EXIT_PEER_LOST, 0) if lost else (0, 9)), (rank, code, number)
    causes = [e["text"] for e in c.events(job) if e["what"] == "rank_failed" and e["generation"] == generation]
    # a survivor's exit may be reported first, and is corrected afterwards
    assert len(causes) == 1 or (len(causes) == 2 and causes[1].endswith("this failure came first")), causes
    assert any(causes[-1].startswith("rank %d killed by signal 9 on %s" % (r["rank"], r["node"])) for r in victims), causes


need_root()
with make() as c:
    job = c.submit(c.write("job.yaml", JOB % os.path.join(c.dir, "out")), cwd="/")
    killed(c, job, 1, lambda r: r["rank"] == 3)
    killed(c, job, 2, lambda r: r["node"] == "n2")
    c.ddpctl("cancel", job)
    c.wait_job(job, "cancelled")
    c.wait_gone(job)
