"""A train job whose steps can be recognised by their loss, which is the mean over just the step's samples."""
import os

from lib.cluster import wait_for

JOB = """
nodes: %s
device: cpu
max_replacements: 0
env: {DDP_TEST_STEP_MS: "300:%s"}
max_restarts: %d
train:
  model: {type: linear, in: 2000, out: 20}
  data: {type: synthetic, samples: 2000, in: 2000, out: 20}
  optimizer: {type: sgd, lr: 0.00001}
  global_batch: 64
  log_every: 2
  steps: %d
  snapshot: {dir: %s, every: %d, keep: 2}
"""


def train(c, name, nodes, steps, slow=True, every=2, restarts=1):
    """Submits a train job and returns its number. nodes: 2, or "1:2". slow: until hurry(), a step takes at least 300 ms."""
    nodes = '"%s"' % nodes if isinstance(nodes, str) else nodes
    if slow:
        c.write("slow", "")
    return c.submit(c.write(name + ".yaml", JOB % (nodes, os.path.join(c.dir, "slow"), restarts, steps, os.path.join(c.dir, name), every)))


def hurry(c):
    """From now on steps take no longer than they must."""
    os.unlink(os.path.join(c.dir, "slow"))


def runs_on(c, job, *nodes):
    """Waits until the job does steps on exactly these nodes. Returns its status."""
    def reached():
        status = c.job(job)
        assert status["state"] not in ("succeeded", "failed", "cancelled"), "too late: " + c.describe(job)
        here = status["state"] == "running" and sorted(status["nodes"]) == sorted(nodes)
        return here and (status["progress"] or {}).get("step", 0) > 0 and status
    return wait_for(reached, lambda: "job %d on %s\n%s" % (job, nodes, c.describe(job)), 40)


def committed(c, job, step):
    wait_for(lambda: (c.job(job)["snapshot"] or {}).get("step", 0) >= step, "step %d to be committed" % step, 40)


def assert_same_loss(a, b, step):
    assert abs(a - b) <= 1e-4 * abs(a), "step %d saw other samples: loss %r, not %r" % (step, b, a)


def losses(c, job):
    """Returns {step: its loss}. Steps that were done twice must have had the same loss."""
    def points():  # exit code 3: a coordinator on a busy machine has not answered in time
        done = c.ddpctl("metrics", job, "-o", "json", check=False)
        assert done.code in (0, 3), done
        return done.code == 0 and done

    found = {}
    for point in wait_for(points, "the metrics of job %s" % job, 120).json()["points"]:
        if point["name"] == "loss":
            assert_same_loss(found.setdefault(point["step"], point["value"]), point["value"], point["step"])
    return found


def undisturbed(c, steps):
    job = train(c, "whole", 1, steps, slow=False)
    assert c.wait_job(job, "succeeded", timeout=60)["generation"] == 1
    wait_for(lambda: steps in losses(c, job), "its last loss")
    return losses(c, job)


def ends_whole(c, job, whole, steps, generation, restarts):
    """Checks that each step, at whatever world size, saw the same samples as in the undisturbed run."""
    hurry(c)
    status = c.wait_job(job, "succeeded", timeout=90)
    assert (status["generation"], status["restarts_used"]) == (generation, restarts), status
    wait_for(lambda: steps in losses(c, job), "its last loss")
    mine = losses(c, job)
    assert len(mine.keys() & whole.keys()) > steps / 25, (sorted(mine), sorted(whole))
    for step in mine.keys() & whole.keys():
        assert_same_loss(whole[step], mine[step], step)
