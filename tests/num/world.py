"""Runs real ddp-trainer processes without a cluster. A Rendezvous service in this process does the coordinator's part for
one generation. Nodes are simulated on this machine: ranks of one node share a run directory, ranks
of different nodes connect by TCP on loopback."""
import array
import concurrent.futures
import glob
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import grpc

SOURCE = os.environ.get("DDP_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
BIN = os.environ.get("DDP_BIN", os.path.join(SOURCE, "build", "bin"))
STUBS = tempfile.TemporaryDirectory(prefix="ddp-stubs-")
subprocess.run(["protoc", f"--proto_path={SOURCE}/proto", f"--python_out={STUBS.name}", "ddp.proto"], check=True)
sys.path.insert(0, STUBS.name)
import ddp_pb2 as pb  # noqa: E402

DEADLINE = 120


class Rendezvous:
    """Serves one generation at a time: Join waits for all ranks, then names the rank that loads the state, and its snapshot."""

    def __init__(self, world, nodes, generation, job, snapshots):
        self.world, self.nodes, self.generation, self.job = world, nodes, generation, job
        self.lock = threading.Condition()
        self.joined, self.bootstrap, self.stop, self.stale = {}, None, False, False
        self.key = os.urandom(32)
        self.snapshots = snapshots  # of committed snapshots: (generation, step) -> digest
        self.commits, self.go_on = [], False
        # step -> commit requests by rank, until all ranks have sent one; None: a rank could not write its part
        self.parts = {}
        self.counts_parts = True  # False: behaves like a coordinator of an older version, which does not count parts
        self.refuses_incomplete = True  # as the coordinator does; False: the trainers notice it themselves
        self.at_commit = None  # called with the request when a snapshot is committed, before the reply

    def lacks_parts(self, digest):
        """Whether the snapshot needs all of its parts, and some of them lie in no rank's directory."""
        offers = [o for r in self.joined.values() for o in r.offers if o.digest == digest]
        return offers[0].needs_all and bool(set.intersection(*(set(o.elsewhere) for o in offers)))

    def source(self):
        """Returns the newest committed offer, of the lowest rank that has it."""
        best = None
        for rank in sorted(self.joined):
            for offer in self.joined[rank].offers:
                if self.refuses_incomplete and self.lacks_parts(offer.digest):
                    continue
                known = self.snapshots.get((offer.generation, offer.step)) == offer.digest
                if (known or offer.committed and (offer.job == self.job or self.go_on)) and \
                        (best is None or (offer.generation, offer.step) > (best[1].generation, best[1].step)):
                    best = rank, offer
        return best

    def join(self, request, context):
        with self.lock:
            self.joined[request.rank] = request
            self.lock.notify_all()
            if not self.lock.wait_for(lambda: len(self.joined) == self.world, timeout=10):
                return pb.JoinReply(state=pb.JOIN_PENDING)
            if self.bootstrap is None and request.rank == 0:
                return pb.JoinReply(state=pb.JOIN_BOOTSTRAP)
            if not self.lock.wait_for(lambda: self.bootstrap is not None, timeout=10):
                return pb.JoinReply(state=pb.JOIN_PENDING)
            best = self.source()
            reply = pb.JoinReply(state=pb.JOIN_READY, world_size=self.world, bootstrap=self.bootstrap,
                                 generation_key=self.key, source_rank=best[0] if best else -1,
                                 loopback=True)
            for rank in range(self.world):
                node, local = self.place(rank)
                reply.peers.add(rank=rank, node=self.node_names[node], local_rank=local, node_rank=node,
                                address=self.joined[rank].address)
            if best:
                reply.source.CopyFrom(best[1])
            for (generation, step), digest in self.snapshots.items():
                reply.committed.add(job=self.job, generation=generation, step=step, digest=digest)
            return reply

    def place(self, rank):
        each = self.world // self.nodes
        return rank // each, rank % each

    def put_bootstrap(self, request, context):
        with self.lock:
            self.bootstrap = request.bootstrap
            self.lock.notify_all()
        return pb.PutBootstrapReply()

    def watch(self, request, context):
        said = None
        while context.is_active():
            with self.lock:
                now = (self.stop, self.stale)
                if now == said:
                    self.lock.wait(timeout=0.2)
                    continue
            said = now
            yield pb.WatchReply(member=not self.stale, generation=self.generation + self.stale, stop=self.stop,
                                counts_parts=self.counts_parts)

    def commit(self, request, context):
        with self.lock:
            if request.parts and (request.generation, request.step) in self.snapshots:
                return pb.CommitSnapshotReply()  # a repeated request, because the reply was lost; the generation may have ended since
            if request.generation != self.generation or self.stale:
                context.abort(grpc.StatusCode.ABORTED, "stale generation")
            if request.parts:
                there = self.parts.setdefault(request.step, {})
                if None in there:
                    context.abort(grpc.StatusCode.ABORTED, "a rank could not write its part")
                there[request.rank] = request
                if len(there) < request.parts:
                    return pb.CommitSnapshotReply(pending=True)
                request = there[0]
            self.snapshots[(request.generation, request.step)] = request.digest
            self.commits.append(request)
            if self.at_commit:
                self.at_commit(request)
            self.lock.notify_all()
        return pb.CommitSnapshotReply()

    def snapshot_failed(self, request, context):
        with self.lock:
            self.parts.setdefault(request.step, {})[None] = request
        return pb.ReportSnapshotFailureReply()

    def serve(self):
        unary = grpc.unary_unary_rpc_method_handler
        methods = {
            "Join": unary(self.join, pb.JoinRequest.FromString, pb.JoinReply.SerializeToString),
            "PutBootstrap": unary(self.put_bootstrap, pb.PutBootstrapRequest.FromString,
                                  pb.PutBootstrapReply.SerializeToString),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch, pb.WatchRequest.FromString,
                                                          pb.WatchReply.SerializeToString),
            "CommitSnapshot": unary(self.commit, pb.CommitSnapshotRequest.FromString,
                                    pb.CommitSnapshotReply.SerializeToString),
            "ReportSnapshotFailure": unary(self.snapshot_failed, pb.ReportSnapshotFailureRequest.FromString,
                                           pb.ReportSnapshotFailureReply.SerializeToString),
        }
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=3 * self.world + 4))
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("ddp.v1.Rendezvous", methods),))
        return self.server.add_insecure_port("127.0.0.1:0")


class Rank:
    def __init__(self, process, rank):
        self.process, self.rank = process, rank
        self.out, self.err, self.reports = "", "", []


class World:
    """Runs a job file's text at a world size; `directory` is its working directory."""

    def __init__(self, directory, job, world=1, nodes=1, generation=1, job_id=7, snapshots=None, own_dirs=False,
                 faults=None, cluster="c1", env=None, node_names=None, refuses_incomplete=True):
        self.directory, self.world, self.nodes = directory, world, nodes
        self.rendezvous = Rendezvous(world, nodes, generation, job_id, {} if snapshots is None else snapshots)
        self.job_id, self.generation, self.own_dirs = job_id, generation, own_dirs
        self.rendezvous.node_names = node_names or [f"node{i}" for i in range(nodes)]
        self.rendezvous.refuses_incomplete = refuses_incomplete
        self.rendezvous.go_on = "resume: continue" in job
        self.temporary = tempfile.TemporaryDirectory(prefix="ddp-run-")
        self.job_file = os.path.join(self.temporary.name, "job.yaml")
        with open(self.job_file, "w") as f:
            f.write(job)
        self.cluster = cluster
        self.faults = faults or {}  # rank -> DDP_FAULT
        self.env = env or {}  # rank -> {name: value}
        self.ranks, self.threads, self.judging = [], [], True

    def __enter__(self):
        port = self.rendezvous.serve()
        self.rendezvous.server.start()
        for rank in range(self.world):
            self.start(rank, port)
        return self

    def start(self, rank, port):
        node, local = self.rendezvous.place(rank)
        run_dir = os.path.join(self.temporary.name, f"n{node}")
        os.makedirs(run_dir, mode=0o700, exist_ok=True)
        cwd = os.path.join(self.directory, f"node{node}") if self.own_dirs else self.directory
        os.makedirs(cwd, exist_ok=True)
        read, write = os.pipe()
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(self.world), LOCAL_RANK=str(local),
                   LOCAL_WORLD_SIZE=str(self.world // self.nodes), GROUP_RANK=str(node),
                   DDP_JOB_ID=str(self.job_id), DDP_CLUSTER_ID=self.cluster, DDP_GENERATION=str(self.generation), DDP_SPAWN=str(rank + 1),
                   DDP_REPORT_FD=str(write), DDP_COORDINATOR=f"127.0.0.1:{port}", DDP_JOB_FILE=self.job_file,
                   DDP_NODE=f"node{node}", DDP_NODE_ADDRESS="127.0.0.1", DDP_RUN_DIR=run_dir)
        if rank in self.faults:
            env["DDP_FAULT"] = self.faults[rank]
        env.update(self.env.get(rank, {}))
        process = subprocess.Popen([os.path.join(BIN, "ddp-trainer")], cwd=cwd, env=env, pass_fds=[write],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(write)
        r = Rank(process, rank)
        self.ranks.append(r)
        for target in (lambda: self.read_text(r, "out", process.stdout), lambda: self.read_text(r, "err", process.stderr),
                       lambda: self.read_reports(r, read), lambda: self.judge(process)):
            thread = threading.Thread(target=target)
            thread.start()
            self.threads.append(thread)

    def read_text(self, r, name, pipe):
        for line in pipe:
            with self.rendezvous.lock:
                setattr(r, name, getattr(r, name) + line)
                self.rendezvous.lock.notify_all()

    def judge(self, process):
        """Ends the generation after a failed exit, as the coordinator does."""
        if process.wait() not in (0, 75, 143) and self.judging:
            self.end_generation()

    def end_generation(self):
        with self.rendezvous.lock:
            self.rendezvous.stale = True
            self.rendezvous.lock.notify_all()

    def read_reports(self, r, fd):
        with os.fdopen(fd) as pipe:
            for line in pipe:
                with self.rendezvous.lock:
                    r.reports.append(json.loads(line))
                    self.rendezvous.lock.notify_all()

    def until(self, condition, what):
        with self.rendezvous.lock:
            if not self.rendezvous.lock.wait_for(condition, timeout=DEADLINE):
                raise AssertionError(f"timed out waiting for {what}: " + "".join(r.err for r in self.ranks))

    def until_step(self, step, rank=0):
        self.until(lambda: any(x.get("step", -1) >= step for x in self.ranks[rank].reports), f"step {step}")

    def until_commit(self, step):
        self.until(lambda: any(c.step >= step for c in self.rendezvous.commits), f"a commit of step {step}")

    def kill_at_commit(self, rank, step):
        """Kills the rank at the first commit of this step or a later one. The step must be early enough that the run cannot end
        first."""
        def kill(request):
            if request.step >= step:
                self.kill(rank)
        with self.rendezvous.lock:
            self.rendezvous.at_commit = kill

    def wait(self):
        """Returns the exit codes by rank."""
        codes = [r.process.wait(timeout=DEADLINE) for r in self.ranks]
        for thread in self.threads:
            thread.join(timeout=DEADLINE)
        return codes

    def run(self):
        codes = self.wait()
        if any(codes):
            raise AssertionError(f"exit codes {codes}: " + "".join(r.err for r in self.ranks))
        return self

    def last(self, name, rank=0):
        return [r[name] for r in self.ranks[rank].reports if name in r][-1]

    def kill(self, rank, number=signal.SIGKILL):
        self.ranks[rank].process.send_signal(number)

    def __exit__(self, *exc):
        self.judging = False
        for r in self.ranks:
            if r.process.poll() is None:
                r.process.send_signal(signal.SIGCONT)
                r.process.kill()
                r.process.wait()
        for thread in self.threads:
            thread.join(timeout=DEADLINE)
        self.rendezvous.server.stop(0)
        self.temporary.cleanup()


def tensors(path):
    """Returns {name: (shape, floats)} of a safetensors file, without ddp's own reader."""
    with open(path, "rb") as f:
        data = f.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    out = {}
    for name, t in header.items():
        start, end = t["data_offsets"]
        raw = data[8 + length + start:8 + length + end]
        out[name] = t["shape"], array.array("f", raw)
    return out


def newest(directory):
    """Returns the snapshot of the highest (step, generation)."""
    names = [n for n in os.listdir(directory) if n.startswith("step-")]
    key = {n: tuple(int(x.strip("g")) for x in n[5:].split("-")) for n in names}
    return os.path.join(directory, max(names, key=key.get))


def model(directory):
    return tensors(os.path.join(newest(directory), "model.safetensors"))


def raw(directory, name="model.safetensors"):
    """Returns the bytes of a file of the newest snapshot. Runs of the same job file, seed and layout write the same bytes."""
    return whole_file(os.path.join(newest(directory), name))


def whole_file(path):
    with open(path, "rb") as f:
        return f.read()


def data_alone(directory, name="model.safetensors"):
    """Returns the data of a snapshot's file, without the header (which names the world size)."""
    data = raw(directory, name)
    return data[8 + struct.unpack("<Q", data[:8])[0]:]


def part(directory, rank):
    """Returns the file of a rank's part of the newest snapshot."""
    at, = glob.glob(os.path.join(directory, f"parts-{os.path.basename(newest(directory))}-j*", f"rank-{rank:05d}.safetensors"))
    return whole_file(at)


def moments(*directories):
    """Returns {name: (shape, floats)} of the moments of the newest snapshot, also if its ranks have divided them. The parts may be in
    several directories, each of which has the shared files. Nothing if each rank has moments of its own, or if there are none."""
    at = newest(directories[0])
    whole, parts = os.path.join(at, "optimizer.safetensors"), os.path.join(at, "parts.json")
    if os.path.exists(whole):
        return tensors(whole)
    if not os.path.exists(parts) or b'"count"' not in whole_file(parts):
        return {}
    paths = [p for d in directories for p in glob.glob(os.path.join(d, f"parts-{os.path.basename(at)}-j*", "rank-*"))]
    pieces, out = {}, {}
    for path in sorted(paths, key=os.path.basename):
        for name, (shape, floats) in tensors(path).items():
            bare, _, cut = name.partition("[")
            pieces.setdefault(bare, []).append((int(cut.split(":")[0]) if cut else 0, floats))
    parameters = model(directories[0])
    for name, found in pieces.items():
        shape = parameters[name.rpartition(".")[0]][0]
        floats = array.array("f")
        for first, more in sorted(found):
            assert first == len(floats), f"{name}: a hole or two copies at {first}"
            floats += more
        assert len(floats) == math.prod(shape), name
        out[name] = shape, floats
    return out


def state_bits(*directories):
    """Returns the data of the newest snapshot: parameters and moments, wherever they lie."""
    found = moments(*directories)
    return [data_alone(directories[0])] + [(name, found[name][1].tobytes()) for name in sorted(found)]


def difference(a, b):
    """Returns the largest |a - b| over the tensors, relative to the largest |a|."""
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    worst = scale = 0.0
    for name in a:
        assert a[name][0] == b[name][0], name
        worst = max(worst, max(abs(x - y) for x, y in zip(a[name][1], b[name][1])))
        scale = max(scale, max(abs(x) for x in a[name][1]))
    return worst / scale


def sweep(title, checks, long=()):
    """Runs `checks` (with --long: `long`; with names: those that are named), prints a line for each, and exits with 1 if one failed."""
    failed = 0
    wanted = sys.argv[1:]
    chosen = long if wanted == ["--long"] else [c for c in (*checks, *long) if c.__name__ in wanted] if wanted else checks
    assert chosen, f"no such check: {wanted}"
    for check in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="ddp-num-") as directory:
            try:
                note = check(directory) or ""
                print(f"ok   {title}: {check.__name__} {note} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception as e:  # noqa: BLE001
                failed += 1
                print(f"FAIL {title}: {check.__name__}: {type(e).__name__}: {e}", flush=True)
    sys.exit(1 if failed else 0)
