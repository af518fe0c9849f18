"""Problems with what a run has saved when it ends, and with where it continues."""
import glob
import hashlib
import json
import os

from lib.cluster import Cluster, SIGKILL, wait_for
from lib.steps import committed, ends_whole, runs_on, train, undisturbed
from membership import rows


def test_stop_saves_a_snapshot():
    """Elsewhere the user must make every rank save at the same step before a stop. Here one command does it: all ranks agree on a
    step, its snapshot is committed, then they end."""
    with Cluster(agents=2) as c:
        job = train(c, "stopped", 2, steps=1000000, every=100000)
        runs_on(c, job, "n1", "n2")
        c.ddpctl("cancel", job)
        c.wait_job(job, "cancelled")
        c.wait_gone(job)
        (step, generation), = rows(c, "SELECT step, generation FROM snapshot WHERE job = ?", job)
        assert step > 0 and generation == 1, step
        ends = rows(c, "SELECT code, signal FROM spawn WHERE job = ?", job)
        assert ends == [(0, 0)] * 2, ends
        more = c.ddpctl("resume", job, "-o", "json").json()["job"]
        runs_on(c, more, "n1", "n2")
        (source,), = rows(c, "SELECT source_step FROM generation WHERE job = ?", more)
        assert source == step, (source, step)


def test_snapshots_are_whole():
    """Elsewhere a killed save leaves a broken checkpoint, and the restart fails on it. Here incomplete snapshots are ignored: after
    many kills during saves, each restart begins from a committed snapshot, and all of those are complete."""
    with Cluster(agents=1) as c:
        job = train(c, "saved", 1, steps=1000000, slow=False, every=1, restarts=8)
        out = os.path.join(c.dir, "saved")
        for generation in range(1, 4):
            wait_for(lambda: c.job(job)["generation"] == generation and c.job(job)["state"] == "running", "it to run", 40)
            wait_for(lambda: (c.job(job)["snapshot"] or {}).get("generation") == generation, "a snapshot")
            if generation == 2:  # as a copy that was cut off leaves it
                os.mkdir(os.path.join(out, "step-900000-g1"))
            os.kill(c.job(job)["ranks"][0]["pid"], SIGKILL)
        wait_for(lambda: c.job(job)["generation"] == 4 and c.job(job)["state"] == "running", "it to run", 40)
        c.ddpctl("cancel", "--kill", job)
        c.wait_job(job, "cancelled")
        for number, source in rows(c, "SELECT number, source_step FROM generation WHERE job = ? AND number > 1", job):
            known = rows(c, "SELECT 1 FROM snapshot WHERE job = ? AND step = ? AND generation < ?", job, source, number)
            assert known and source < 900000, (number, source)
        marks = glob.glob(out + "/step-*/COMMITTED.json")
        assert marks
        for mark in marks:
            with open(mark) as f:
                for name, digest in files_of(json.load(f)).items():
                    with open(os.path.join(os.path.dirname(mark), name), "rb") as data:
                        assert hashlib.sha256(data.read()).hexdigest() == digest, (mark, name)


def files_of(mark):
    files = mark["files"]
    return files if isinstance(files, dict) else {f["name"]: f["sha256"] for f in files}


def test_resized_job_sees_each_sample_once():
    """Elsewhere a run that resumes within an epoch on another number of ranks loses or repeats samples. Here the run has one
    position in the data: each step has the loss of the same step of an undisturbed run."""
    steps, amid = 100, False  # an epoch is 32 of them
    with Cluster(agents=2, slots=1) as c:
        whole = undisturbed(c, steps)
        for attempt in range(3):  # it may stop between two epochs, by chance
            job = train(c, "resized%d" % attempt, 2, steps=steps)
            committed(c, job, 20)
            c.ddpctl("resize", job, 1)
            ends_whole(c, job, whole, steps, generation=2, restarts=0)
            (at,), = rows(c, "SELECT source_step FROM generation WHERE job = ? AND number = 2", job)
            amid = at % 32 != 0
            if amid:
                break
        assert amid
