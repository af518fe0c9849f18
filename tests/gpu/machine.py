"""Finds what the checks need on this machine: ddp's programs, the GPU, CUDA's libraries, and the environment in which the
trainer uses them. Programs are in a build directory of a source tree, or in the bundle, which has no sources."""
import ctypes.util
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import time

from suite import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "cluster"))
PROGRAMS = ("ddp-coordinator", "ddp-agent", "ddp-supervisor", "ddp-store", "ddp-trainer", "ddpctl")
CUDA = 13  # major version of CUDA that the plugin is linked with
LIBRARIES = ("libcublasLt.so", "libnccl.so", "libcudnn.so", "libnvrtc.so")


def program_output(args, most=60, env=None, ends=(0,)):
    """Returns the stdout of a program, or None if there is no such program or it fails."""
    try:
        done = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=most, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode in ends else None


def find_programs(build):
    """Returns the directories of the programs and of the test programs: DDP_BIN, or the bundle that contains this file, or the
    build directory."""
    bundle = os.path.dirname(os.path.dirname(os.path.dirname(TESTS)))  # <bundle>/share/ddp/tests/gpu
    build = build or os.path.join(os.path.dirname(TESTS), "build")
    for programs, tests in ((os.environ.get("DDP_BIN"), os.path.join(build, "tests")),
                            (os.path.join(bundle, "bin"), os.path.join(bundle, "lib", "ddp", "bin")),
                            (os.path.join(build, "bin"), os.path.join(build, "tests"))):
        if programs and all(os.access(os.path.join(programs, p), os.X_OK) for p in PROGRAMS):
            return os.path.abspath(programs), os.path.abspath(tests)
    return None, None


def build_here(say):
    """Builds the source tree of this file. Returns the reason if it cannot be built."""
    source = os.path.dirname(TESTS)
    if not os.path.exists(os.path.join(source, "CMakePresets.json")):
        return "this is not a source tree"
    for tool in ("cmake", "ninja", "protoc-c"):
        if not shutil.which(tool):
            return "there is no " + tool
    env = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/local/cuda/bin")
    for step in (["cmake", "--preset", "default", "-DDDP_CUDA=ON"], ["cmake", "--build", "build"]):
        say("$ " + " ".join(step))
        done = subprocess.run(step, cwd=source, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        say(done.stdout[-4000:])
        if done.returncode:
            return "'%s' failed" % " ".join(step)
    return None


def cuda_directories():
    """Directories of CUDA's libraries that the loader does not search by itself: CUDA's own, and those of pip's packages for
    PyTorch. If a directory belongs to another version of CUDA than the plugin's, neither it nor its neighbours are used."""
    groups = sorted(glob.glob("/usr/local/cuda") + glob.glob("/usr/local/cuda-*"))
    groups = [[os.path.join(cuda, "lib64"), os.path.join(cuda, "lib")] for cuda in groups]
    roots = [p for p in sys.path if p.endswith("-packages")]
    for python in torch_pythons():
        said = program_output([python, "-c", "import sys; print(*[p for p in sys.path if p.endswith('-packages')], sep='\\n')"])
        roots += (said or "").splitlines()
    groups += [[os.path.join(root, "nvidia", "*", "lib")] for root in roots]
    found = []
    for group in groups:
        places = [os.path.realpath(p) for pattern in group for p in sorted(glob.glob(pattern))]
        places = [p for p in places if any(glob.glob(os.path.join(p, name + "*")) for name in LIBRARIES)]
        if fits_plugin_cuda(places):
            found += [p for p in places if p not in found]
    return found


def fits_plugin_cuda(places):
    """Whether directories that belong together hold cuBLASLt of the plugin's version, or no cuBLASLt at all."""
    files = [f for p in places for f in glob.glob(os.path.join(p, "libcublasLt.so.*"))]
    return not files or any(re.search(r"\.so\.%d(\.|$)" % CUDA, f) for f in files)


def report_name(emulated, gpus):
    """Returns the first part of a report's file name: the GPU."""
    if emulated:
        return "emulated"
    words = re.sub("[^a-z0-9]+", "-", (gpus[0]["name"] if gpus else "no-gpu").lower())
    return re.sub("^nvidia-", "", words).strip("-")


def visible_gpus(gpus, narrowed):
    """Returns the GPUs that CUDA_VISIBLE_DEVICES selects, in its order, or all GPUs if it is unset. The first one is in use."""
    if narrowed is None:
        return gpus
    words = [w.strip() for w in narrowed.split(",") if w.strip()]
    return [g for w in words for i, g in enumerate(gpus) if w == str(i) or (len(w) > 4 and g["uuid"].startswith(w))]


def torch_pythons():
    """Returns Python interpreters that may have PyTorch, the most likely first."""
    named = [os.environ.get("DDP_TORCH_PYTHON"), shutil.which("python3"), shutil.which("python"), sys.executable,
             "/usr/bin/python3", *sorted(glob.glob("/opt/*/bin/python3")), *sorted(glob.glob("/opt/*/.venv/bin/python3"))]
    seen = []
    for python in named:
        if python and os.path.exists(python) and python not in seen:
            seen.append(python)
    return seen


class Machine:
    """bin, tests: directories of programs. env: the environment of programs that use the GPU."""

    def __init__(self, scratch, build=None, plugin=None, llmc=None):
        """plugin: replaces libddp_cuda.so on a machine without a GPU; "emulated": the emulated plugin of the build."""
        self.scratch, self.emulated, self.llmc = scratch, bool(plugin), llmc
        self.stopped = 0  # the signal that ended the call
        self.found_torch = None
        self.deadline, self.waiting = 0.0, []  # when the checks of this call must end; the names of the checks still to come
        self.earlier = lambda name: {}  # the figures of an earlier check, by its name
        self.bin, self.tests = find_programs(build)
        self.gpus = [] if plugin else self.find_gpus()
        self.env = dict(os.environ)
        for name in [n for n in self.env if n.startswith(("DDP_", "PET_", "SLURM_", "NCCL_")) and n != "DDP_LOG"]:
            del self.env[name]
        if plugin:
            self.emulate(plugin)
        else:
            places = [] if self.loader_knows() else cuda_directories()
            if places:
                self.env["LD_LIBRARY_PATH"] = ":".join([*filter(None, [self.env.get("LD_LIBRARY_PATH")]), *places])
            self.env.setdefault("CUDA_VISIBLE_DEVICES", self.gpus[0]["uuid"] if self.gpus else "0")

    def emulate(self, plugin):
        """Sets the environment so that programs use the emulated plugin, and a stand-in for NVML that shows one GPU."""
        above = os.path.dirname(self.bin or "")
        bundled = os.path.join(above, "lib", "ddp", "emulated")
        library = os.path.join(bundled if os.path.isdir(bundled) else os.path.join(above, "lib", "ddp_emulated"), "libddp_cuda.so")
        self.env["DDP_CUDA_PLUGIN"] = library if plugin == "emulated" else plugin
        nvml = bundled if os.path.isdir(bundled) else os.path.join(above, "tests", "standin_nvml")
        self.uuid = "GPU-emulated-%d" % os.getpid()
        driver = os.path.join(self.scratch, "gpus")
        with open(driver, "w") as f:
            f.write("uuid=%s name=NVIDIA_H200 memory=141\n" % self.uuid)
        self.env.update(STANDIN_NVML=driver, LD_LIBRARY_PATH=os.path.abspath(nvml), CUDA_VISIBLE_DEVICES=self.uuid)
        self.env["OMP_NUM_THREADS"] = "1"

    def close(self):
        """Removes the agents' locks on the emulated GPU."""
        for place in ("/run/lock", "/tmp"):
            for path in glob.glob("%s/ddp-%s*" % (place, self.uuid)) if self.emulated else ():
                os.unlink(path)

    @staticmethod
    def loader_knows():
        """Returns whether the loader finds by itself cuBLASLt of the plugin's CUDA version, NCCL and cuDNN."""
        blas = ctypes.util.find_library("cublasLt") or ""
        return blas.endswith(".so.%d" % CUDA) and all(ctypes.util.find_library(name) for name in ("nccl", "cudnn"))

    @staticmethod
    def nvidia_smi():
        return shutil.which("nvidia-smi") or next(iter(glob.glob("/usr/local/nvidia/bin/nvidia-smi")), "nvidia-smi")

    def memory_used(self):
        """Returns the MiB of the GPU's memory that all processes use, as nvidia-smi says, or None if it does not."""
        said = program_output([self.nvidia_smi(), "--query-gpu=memory.used", "--format=csv,noheader,nounits",
                               "--id=" + self.gpus[0]["uuid"]]) if self.gpus else None
        return int(said) if said and said.isdigit() else None

    @staticmethod
    def find_gpus():
        said = program_output([Machine.nvidia_smi(), "--query-gpu=name,uuid,memory.total,driver_version,clocks.max.sm,power.limit",
                        "--format=csv,noheader,nounits"])
        names = ("name", "uuid", "memory_mb", "driver", "max_mhz", "power_limit_w")
        found = [dict(zip(names, (cell.strip() for cell in row.split(",")))) for row in (said or "").splitlines() if row]
        return visible_gpus(found, os.environ.get("CUDA_VISIBLE_DEVICES"))

    def program(self, name):
        return os.path.join(self.bin, name)

    def test_program(self, name):
        """Returns the path of a test program, or None if it was not built."""
        path = os.path.join(self.tests, name)
        return path if os.access(path, os.X_OK) else None

    def cluster(self, run, slots):
        """Starts a coordinator and an agent that runs `slots` workers on each GPU. Use the result in a `with` statement."""
        os.environ["DDP_BIN"] = self.bin  # lib.cluster reads it when it is imported
        from lib.cluster import Cluster
        c = Cluster(start=False, agent_args=["--slots-per-gpu", str(slots)] if slots > 1 else [])
        c.env.update({k: v for k, v in self.env.items() if k not in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")})
        try:
            c.start(agents=1)
            self.wait_gpus(c)
        except BaseException:
            c.failed = True
            c.close()
            raise
        return c

    @staticmethod
    def wait_gpus(c):
        """Waits until the agent sees a GPU. Without this, jobs would wait for a GPU until the time limit of their check."""
        end = time.monotonic() + 10
        while not c.nodes()[0].get("gpus"):
            if time.monotonic() > end:
                raise Failed("the agent finds no GPU by NVML; see the agent's log in the log of this check")
            time.sleep(0.05)  # polling interval

    def test_env(self):
        """Returns the environment of test programs. It names the plugin, because they do not lie beside it."""
        for plugin in ("libddp_cuda.so", os.path.join("..", "lib", "ddp", "libddp_cuda.so")):
            plugin = os.path.normpath(os.path.join(self.bin, plugin))
            if os.path.exists(plugin):
                return {"DDP_CUDA_PLUGIN": plugin, **self.env}
        return self.env

    def refusal(self):
        """Returns why the trainer cannot open a GPU; then only the stages machine and correctness run. Returns None if it can open
        one, or fails later."""
        if self.emulated:
            return None
        if not self.gpus and not glob.glob("/dev/nvidia[0-9]*") and not os.path.exists("/dev/dxg"):
            return "no GPU: nvidia-smi names none, and there is no /dev/nvidia0"
        job = os.path.join(self.scratch, "one-step.yaml")
        with open(job, "w") as f:
            f.write("name: one-step\ndevice: cuda\ntrain:\n  model: {type: linear, in: 20, out: 1}\n"
                    "  data: {type: synthetic, samples: 64}\n  batch: 8\n  steps: 1\n")
        try:
            done = subprocess.run([self.program("ddp-trainer"), "--standalone", job], stdin=subprocess.DEVNULL, timeout=60,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", env=self.env,
                                  cwd=self.scratch)
        except subprocess.TimeoutExpired:
            return "the trainer did not open a GPU in 60 s"
        why = re.search("device: cuda: (.*)", done.stderr) if done.returncode else None
        driver = ", ".join(sorted({g["driver"] for g in self.gpus}))
        return why and why.group(1) + (" (the driver is %s)" % driver if driver else "")

    def versions(self):
        """Returns the versions of the trainer and of the plugin's libraries, or the reason why there is no plugin."""
        asked = [[self.program("ddp-trainer"), "--version"], [self.program("ddp-trainer"), "--plugin"]]
        return [program_output(args, env=self.env, ends=(0, 1)) or "" for args in asked]

    def torch(self):
        """Returns (interpreter, version) of a PyTorch that sees the GPU, or (None, reason). Searches only once."""
        self.found_torch = self.found_torch or self.find_torch()
        return self.found_torch

    def find_torch(self):
        """With the emulated GPU, PyTorch runs on the CPU, and only if DDP_TORCH_PYTHON names it. This tests the comparison itself."""
        why = "no interpreter with PyTorch"
        ask = "import torch; print(torch.__version__, torch.cuda.is_available())"
        named = [os.environ.get("DDP_TORCH_PYTHON") or ""]
        for python in torch_pythons() if not self.emulated else filter(os.path.exists, named):
            said = program_output([python, "-c", ask], most=120)
            if not said:
                continue
            version, sees = said.splitlines()[-1].split()
            if self.emulated or sees == "True":
                return python, version
            why = "PyTorch %s of %s sees no GPU" % (version, python)
        return None, why

    def describe(self):
        processor = ""
        try:
            with open("/proc/cpuinfo") as f:
                processor = re.search(r"model name\s*: (.*)", f.read()).group(1)
        except (OSError, AttributeError):
            pass
        return {"gpus": self.gpus, "versions": self.versions(), "processor": processor,
                "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "python": platform.python_version()}

    def name(self):
        """Returns the first part of the report's file name: the GPU."""
        return report_name(self.emulated, self.gpus)
