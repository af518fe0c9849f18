"""Checks the machine: the GPU, CUDA's libraries and where they are loaded from, and the rates of copies and of products."""
import json
import os
import re
import shutil
import sys

import jobs
from suite import Failed, Skipped, check

# Loads each library as the plugin would, and prints its path and version as JSON.
ASK = """
import ctypes, json, sys
found = {}
for name, number in (("libcuda.so.1", "cuDriverGetVersion"), ("libcublasLt.so.13", "cublasLtGetVersion"),
                     ("libnccl.so.2", "ncclGetVersion"), ("libcudnn.so.9", "cudnnGetVersion")):
    try:
        library = ctypes.CDLL(name)
        function = getattr(library, number)
        if name in ("libcuda.so.1", "libnccl.so.2"):
            value = ctypes.c_int()
            function(ctypes.byref(value))
            version = value.value
        else:
            function.restype = ctypes.c_size_t
            version = function()
        with open("/proc/self/maps") as f:
            paths = [line.split()[-1] for line in f if name.split(".so")[0] + ".so" in line]
        found[name] = "%d, %s" % (version, paths[0] if paths else "?")
    except (OSError, AttributeError) as e:
        found[name] = "missing: %s" % e
print(json.dumps(found))
"""


@check("machine", "libraries", "the GPU, its driver, and which files of cuBLASLt, NCCL and cuDNN are loaded", most=60)
def libraries(run):
    m = run.machine
    done = run.command([sys.executable, "-c", ASK])
    try:
        found = json.loads(done.out)
    except ValueError:
        raise Failed("the libraries cannot be loaded: " + done.ending())
    found["plugin"] = m.versions()[1]
    found["compute-sanitizer"] = sanitizer() or "missing"
    found["free_gib"] = shutil.disk_usage(m.scratch).free / 2 ** 30
    found["memory_gib"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    for gpu in m.gpus:
        run.say("GPU: %s" % gpu)
    for name, said in found.items():
        run.say("%s: %s" % (name, said))
    blas = found["libcublasLt.so.13"]
    if not m.emulated and blas.startswith("missing"):
        raise Failed("libcublasLt.so.13 is %s (name its directory in LD_LIBRARY_PATH)" % blas, found)
    return found


def sanitizer():
    places = (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer")
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


@check("machine", "device", "the trainer opens the GPU and takes some steps on it", most=90)
def device(run):
    reports = jobs.train(run, jobs.text(jobs.mlp(5, True)), "device")
    losses = jobs.curve(reports)
    if len(losses) != 5:
        raise Failed("expected 5 losses for 5 steps, got %s" % losses)
    with open(run.log) as f:
        named = re.search(r'event=sizes .*?\bdevice=("[^"]*"|\S+)', f.read())
    if not named:
        raise Failed("the log does not name the device")
    return {"last_loss": losses[5], "device": named.group(1).strip('"'), "plugin": run.machine.versions()[1]}


@check("machine", "rates", "rates of copies and of bf16 products of random numbers, for the roofline", most=60)
def rates(run):
    program = run.machine.test_program("gpu_rates")
    if not program:
        raise Skipped("gpu_rates was not built")
    done = run.command([program, *(["--quick"] if run.quick else [])], env=run.machine.test_env())
    if done.code == 77:
        raise Skipped(done.last_words())
    if done.code:
        raise Failed(done.ending())
    found = {name: float(value) for name, value in re.findall(r"(\w+)=([0-9.e+]+)$", done.out, re.M)}
    if set(found) != {"copy_gb_s", "bf16_tflops"} or not all(found.values()):
        raise Failed("gpu_rates did not print its figures: '%s'" % done.last_words())
    return found
