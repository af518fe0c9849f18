"""A command job whose ranks count: they report steps, write a file each, and end when they are told to."""
import os

from lib.cluster import wait_for

SCRIPT = """i=0
echo $$ > pid-$RANK
while [ ! -e finish ]; do
    i=$((i + 1))
    echo "{\\"step\\": $i}" >&$DDP_REPORT_FD
    echo $i > step-$RANK.new && mv step-$RANK.new step-$RANK
    sleep 0.02
done
"""


class Counting:
    def __init__(self, cluster, nodes=2, job_keys=""):
        self.cluster, self.nodes = cluster, nodes
        cluster.write("count.sh", SCRIPT)
        path = cluster.write("count.yaml", "nodes: %d\nworkdir: %s\n%scommand: [sh, count.sh]\n" % (
            nodes, cluster.dir, job_keys))
        self.job = cluster.submit(path)
        self.wait_growth()
        self.pids = self.read_pids()

    def read(self, name):
        try:
            with open(os.path.join(self.cluster.dir, name)) as f:
                return int(f.read() or 0)
        except (OSError, ValueError):
            return 0

    def read_pids(self):
        return [self.read("pid-%d" % rank) for rank in range(self.nodes)]

    def steps(self):
        return [self.read("step-%d" % rank) for rank in range(self.nodes)]

    def wait_growth(self, by=5):
        """Waits until every rank has counted on from its present number."""
        before = self.steps()
        wait_for(lambda: all(now >= was + by for now, was in zip(self.steps(), before)),
                 lambda: "ranks to count on from %s: %s" % (before, self.steps()))

    def finish(self):
        """Checks that the same processes succeed and that no restart was counted."""
        assert self.read_pids() == self.pids, "other processes: %s, not %s" % (self.read_pids(), self.pids)
        self.cluster.write("finish", "")
        job = self.cluster.wait_job(self.job, "succeeded")
        assert job["generation"] == 1 and job["restarts_used"] == 0, job
        self.cluster.wait_gone(self.job)
