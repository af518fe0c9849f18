"""Coordinator, agent, supervisor and ddpctl with a GPU: the node shows it, and a job leases it and
continues while daemons are killed. `ddpctl check --deep` measures it."""
import os
import signal

import jobs
from suite import Failed, check
from stage_nccl import gpt_lines, wait_for_snapshot, wait_succeeded


RATES = ("matrix", "memory", "upload", "download")


def gpus_of(node):
    return node.get("gpus", [])


@check("cluster", "node-shows-gpus", "`ddpctl nodes` names the GPU, its memory and health", least=10)
def node_shows_gpus(run):
    with run.machine.cluster(run, slots=1) as c:
        node, = c.nodes()
        run.say(c.ddpctl("nodes").out)
        if not gpus_of(node):
            raise Failed("the node shows no GPU: %s" % node)
        sick = [g for g in gpus_of(node) if not g.get("healthy", True)]
        if sick:
            raise Failed("not healthy: %s" % sick)
        return {"gpus": gpus_of(node)}


@check("cluster", "leases", "two jobs that want the one GPU run one after the other, each with its UUID", least=20)
def leases(run):
    with run.machine.cluster(run, slots=1) as c:
        ask = ["--device", "cuda", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
        first = c.submit("--device", "cuda", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; touch up; "
                         "while ! test -e go; do sleep 0.05; done", cwd=run.dir)
        run.wait(lambda: os.path.exists(run.path("up")), "the first job to run")
        second = c.submit(*ask, cwd=run.dir)
        status = c.job(second)
        if status["state"] != "queued":
            raise Failed("the second job is %s while the first holds the GPU" % status["state"])
        run.path("go", "")
        for job in (first, second):
            c.wait_job(job, "succeeded", timeout=run.left())
        seen = [c.logs(job).strip() for job in (first, second)]
    if seen[0] != seen[1] or not seen[0]:
        raise Failed("CUDA_VISIBLE_DEVICES was %s" % seen)
    return {"visible": seen[0]}


@check("cluster", "daemons-killed", "a job continues to train while agent and coordinator are killed and restarted", least=40)
def daemons_killed(run):
    out, whole = run.path("out"), run.path("whole")
    steps, every = (30, 5) if run.quick else (6000, 200)
    with run.machine.cluster(run, slots=1) as c:
        job = c.submit(run.path("job.yaml", jobs.text(gpt_lines(run, steps, out, every), restarts=1)))
        ranks = wait_for_snapshot(c, job, run, out)
        for daemon in (c.agents["n1"], c.coordinator):
            daemon.kill(int(signal.SIGKILL))
        c.start_coordinator()
        c.start_agent("n1")
        c.wait_nodes(1)
        status, _ = wait_succeeded(c, job, run)
        if (status["generation"], status["restarts_used"]) != (1, 0):
            raise Failed("generation %d, %d restarts: the worker should have continued" % (status["generation"],
                                                                                          status["restarts_used"]))
        c.wait_gone(job)
    jobs.train(run, jobs.text(gpt_lines(run, steps, whole, every)), "whole")
    if jobs.tensors(out) != jobs.tensors(whole):
        raise Failed("the parameters differ from those of an undisturbed run")
    return {"device": ranks[0].get("device", ""), "steps": steps}


@check("cluster", "check-deep", "`ddpctl check --deep` measures products, memory and copies of the GPU", least=25)
def check_deep(run):
    """Every GPU is measured. A single GPU has no peers that it could be slower than."""
    seconds = "1" if run.quick else "3"
    with run.machine.cluster(run, slots=1) as c:
        run.say(c.ddpctl("check", "--deep", "--seconds", seconds, check=False, timeout=run.left()).out)
        done = c.ddpctl("check", "--deep", "--seconds", seconds, "-o", "json", check=False, timeout=run.left())
        said = done.json()
        places = said["measured"]
        if done.code or not said["fit"] or said["problems"] or len(places) != len(run.machine.gpus or [None]):
            raise Failed("it ended with %d: %s" % (done.code, done.out.strip()))
    if any(rate not in p for p in places for rate in RATES):
        raise Failed("a rate is missing: %s" % places)
    return {rate: min(p[rate]["median"] for p in places) for rate in RATES}
