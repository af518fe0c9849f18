"""A cluster whose nodes have GPUs of a stand-in driver (tests/standins/nvml)."""
import os

from lib.cluster import Cluster

STANDIN = os.path.join(os.environ["DDP_BUILD"], "tests", "standin_nvml")
STAYS = "echo $CUDA_VISIBLE_DEVICES; while ! test -e %s; do sleep 0.05; done"
SEES = "echo $RANK $LOCAL_RANK [$CUDA_VISIBLE_DEVICES] $NCCL_HOSTID"


class Gpus(Cluster):
    """nodes: how many GPUs each has. A node's GPUs are lines of a file; set(node, lines) changes them."""

    def __init__(self, nodes, agent_args=(), visible=None):
        self.counts = nodes
        super().__init__(agents=0, slots=4, agent_args=agent_args, config="settle: 1s")
        self.env["LD_LIBRARY_PATH"] = STANDIN
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            self.env["CUDA_VISIBLE_DEVICES"] = visible
        for node, count in nodes.items():
            self.set(node, [{} for _ in range(count)])
            self.restart(node)
        self.wait_nodes(len(nodes))

    def uuid(self, node, index):
        return "GPU-%s-%s-%d" % (self.id, node, index)  # other tests hold locks of their own

    def set(self, node, gpus):
        lines = ["uuid=%s name=NVIDIA_H200 memory=141 %s\n" % (
            self.uuid(node, i), " ".join("%s=%s" % pair for pair in {"temperature": 40 + i, "power": 100, **g}.items())) for i, g in enumerate(gpus)]
        path = self.write("nvml-%s.new" % node, "".join(lines))
        os.rename(path, self.driver(node))

    def driver(self, node):
        return os.path.join(self.dir, "nvml-" + node)

    def restart(self, node):
        self.env["STANDIN_NVML"] = self.driver(node)
        self.start_agent(node)

    def gpu(self, node, index):
        return [n for n in self.nodes() if n["name"] == node][0]["gpus"][index]

    def sees(self, *args):
        """Returns what the job's workers print, sorted."""
        job = self.submit(*args, "--", "sh", "-c", SEES)
        self.wait_job(job, "succeeded")
        return sorted(self.logs(job).splitlines())

    def stay(self, name, *args):
        """Submits a job that ends when the file of this name appears."""
        flag = os.path.join(self.dir, name)
        job = self.submit("--device", "cuda", *args, "--", "bash", "-c", STAYS % flag)
        return job, lambda: open(flag, "w").close()

    def close(self):
        for place in ("/run/lock", "/tmp"):
            for name in os.listdir(place) if os.path.isdir(place) else ():
                if name.startswith("ddp-GPU-" + self.id):
                    os.unlink(os.path.join(place, name))
        super().close()
