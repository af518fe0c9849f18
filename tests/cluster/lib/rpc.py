"""The coordinator's services for Python, with stubs that protoc and gRPC's plugin make from proto/ddp.proto.

    rpc = connect("unix:/state/coordinator.sock")        # or "127.0.0.1:29600", token="..."
    rpc.cluster.SubmitJob(pb.SubmitJobRequest(...))

Skips the test (exit 77) if python3-grpcio or the plugin is not installed.
"""
import collections
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading

SOURCE = os.environ.get("DDP_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))


def _load():
    try:
        import grpc as module
    except ImportError:
        print("skipped: python3-grpcio is not installed")
        sys.exit(77)
    plugin = shutil.which("grpc_python_plugin")
    if plugin is None or shutil.which("protoc") is None:
        print("skipped: protobuf-compiler-grpc is not installed")
        sys.exit(77)
    out = tempfile.mkdtemp(prefix="ddp-proto-")
    try:
        subprocess.run(["protoc", "-I", os.path.join(SOURCE, "proto"), "--python_out", out, "--grpc_python_out", out,
                        "--plugin=protoc-gen-grpc_python=" + plugin, "ddp.proto", "health.proto"], check=True)
        sys.path.insert(0, out)
        import ddp_pb2
        import ddp_pb2_grpc
        import health_pb2
        import health_pb2_grpc
        sys.path.remove(out)
    finally:
        shutil.rmtree(out)
    return module, ddp_pb2, ddp_pb2_grpc, health_pb2, health_pb2_grpc


grpc, pb, _stubs, health_pb, _health = _load()

Services = collections.namedtuple("Services", "channel cluster agent rendezvous health")


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Adds the authorization header. gRPC's own call credentials would need TLS."""

    def __init__(self, token):
        self.metadata = (("authorization", "Bearer " + token),)

    def _add(self, details):
        return details._replace(metadata=tuple(details.metadata or ()) + self.metadata) if hasattr(
            details, "_replace") else _Details(details, self.metadata)

    def intercept_unary_unary(self, go_on, details, request):
        return go_on(self._add(details), request)

    intercept_unary_stream = intercept_stream_stream = intercept_unary_unary


class _Details(grpc.ClientCallDetails):
    def __init__(self, other, metadata):
        self.method, self.timeout = other.method, other.timeout
        self.metadata = tuple(other.metadata or ()) + metadata
        self.credentials, self.wait_for_ready = other.credentials, other.wait_for_ready
        self.compression = other.compression


def connect(address, token=None, credentials=None, options=()):
    # Each call makes a new channel (grpcio shares connections otherwise), which keeps looking for a server that comes back.
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1),
               ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200), *options]
    channel = (grpc.secure_channel(address, credentials, options) if credentials
               else grpc.insecure_channel(address, options))
    used = grpc.intercept_channel(channel, _Token(token)) if token else channel
    return Services(channel, _stubs.ClusterStub(used), _stubs.AgentStub(used), _stubs.RendezvousStub(used),
                    _health.HealthStub(used))


def code_of(call, *args, **options):
    """Returns the name of the status code of a call. A stream is read to its end."""
    try:
        answer = call(*args, timeout=options.pop("timeout", 10), **options)
        if hasattr(answer, "__next__"):
            for _ in answer:
                pass
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


class FakeAgent:
    """An agent that starts no processes: it keeps the newest wish, and reports about the spawns in it what the test says.
    It answers log reads from `files`: {(job, first local rank, standard_error): bytes}. gpus: their UUIDs."""

    def __init__(self, rpc, node, slots=2, instance=None, heartbeat=0.2, gpus=(), nccl=""):
        self.rpc, self.node, self.slots, self.instance = rpc, node, slots, instance or "i-" + node
        self.heartbeat = heartbeat
        self.gpus = [pb.Gpu(uuid=uuid, name="H200", index=i, healthy=True) for i, uuid in enumerate(gpus)]
        self.nccl = nccl
        self.files, self.reads = {}, {}
        self.epoch = self.revision = 0
        self.state = {}  # (job, spawn): a SpawnFact
        self.changed = threading.Condition()
        self.end = None
        self.acks = 0
        self.wish = None
        self.start()

    def start(self):
        self.out = queue.Queue()
        self.welcome = None
        self.end = None
        self.out.put(pb.AgentUp(hello=pb.Hello(
            node=self.node, instance=self.instance, session=os.urandom(8).hex(), version="test", address="127.0.0.1",
            cpu_slots=self.slots, cores=self.slots, memory_bytes=1 << 30, port_first=29700, port_last=29799,
            gpus=self.gpus, nccl_version=self.nccl, log_dir="/nowhere", epoch=self.epoch, revision=self.revision)))
        self.call = self.rpc.agent.Session(iter(self.out.get, None))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.beater = threading.Thread(target=self._beat, args=(self.call,), daemon=True)
        self.beater.start()

    def _beat(self, call):
        number = 0
        while self.end is None and self.call is call:
            number += 1
            if self.heartbeat and self.welcome:
                self.out.put(pb.AgentUp(heartbeat=pb.Heartbeat(sequence=number, load=0.5)))
            with self.changed:
                self.changed.wait(self.heartbeat or 0.1)

    def _read(self):
        try:
            for down in self.call:
                with self.changed:
                    self._take(down)
                    self.changed.notify_all()
            code = "OK"
        except grpc.RpcError as error:
            code = error.code().name
        with self.changed:
            self.end = code
            self.changed.notify_all()

    def _take(self, down):
        which = down.WhichOneof("body")
        if which == "welcome":
            self.welcome = down.welcome
        elif which == "ack":
            self.acks += 1
        elif which == "wish":
            self.wish, self.epoch, self.revision = down.wish, down.wish.epoch, down.wish.revision
            self._reconcile()
        elif which == "log_read":
            self._serve(down.log_read)

    def _reconcile(self):
        for group in self.wish.groups:
            for spawn in group.spawns:
                key = (group.job, spawn.spawn)
                if key not in self.state:
                    self.state[key] = pb.SpawnFact(job=group.job, spawn=spawn.spawn, state="running", pid=1000 + spawn.spawn)
                if spawn.stop and self.state[key].state != "exited":
                    self.state[key].state, self.state[key].signal = "exited", 15
        wanted = {(g.job, s.spawn) for g in self.wish.groups for s in g.spawns}
        self.state = {k: f for k, f in self.state.items() if k in wanted}
        self.facts()

    def facts(self):
        self.out.put(pb.AgentUp(facts=pb.Facts(epoch=self.epoch, revision=self.revision,
                                               spawns=list(self.state.values()))))

    def exit(self, job, code=0, signal=0, **more):
        """Reports that all of the job's processes here have ended."""
        with self.changed:
            for (j, _), fact in self.state.items():
                if j == job and fact.state != "exited":
                    fact.MergeFrom(pb.SpawnFact(state="exited", code=code, signal=signal, **more))
            self.facts()

    def _serve(self, read):
        self.reads[read.read] = read
        if read.cancel:
            return
        data = self.files.get((read.job, read.first_local_rank, read.standard_error))
        if data is None:
            self.out.put(pb.AgentUp(log_chunk=pb.LogChunk(read=read.read, end=True, error="no such file")))
            return
        start = max(0, len(data) - read.tail_bytes) if read.tail_bytes else read.offset
        piece = data[start:start + (read.limit or len(data))]
        end = start + len(piece) >= len(data) and (not read.follow or self.ended(read.job))
        for at in range(0, len(piece), 16384):
            self.out.put(pb.AgentUp(log_chunk=pb.LogChunk(read=read.read, offset=start + at,
                                                          data=piece[at:at + 16384])))
        if end:
            self.out.put(pb.AgentUp(log_chunk=pb.LogChunk(read=read.read, offset=start + len(piece), end=True)))

    def ended(self, job):
        return all(f.state == "exited" for (j, _), f in self.state.items() if j == job)

    def report(self, job, spawn, step, **metrics):
        self.out.put(pb.AgentUp(reports=pb.Reports(reports=[pb.Report(
            job=job, spawn=spawn, time_ms=1000 + step, line=json.dumps({"step": step, **metrics}))])))

    def group(self, job):
        """Returns the job's part of the newest wish, or None."""
        with self.changed:
            return next((g for g in (self.wish.groups if self.wish else ()) if g.job == job), None)

    def close(self):
        """Ends the stream without a goodbye."""
        self.call.cancel()
        self.out.put(None)
        self.reader.join(5)
