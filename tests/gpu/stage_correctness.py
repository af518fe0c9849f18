"""Compares operations with the CPU device, and runs them under compute-sanitizer."""
import os
import re
import shutil

import jobs
from suite import Failed, Skipped, check

CASES = ["--quick"]


@check("correctness", "device", "the trainer opens the GPU and takes some steps on it")
def device(run):
    reports = jobs.train(run, jobs.text(jobs.mlp(5, True)), "device")
    losses = jobs.curve(reports)
    if len(losses) != 5:
        raise Failed("5 steps want 5 losses: %s" % losses)
    with open(run.log) as f:
        named = re.search(r'event=sizes .*?\bdevice=("[^"]*"|\S+)', f.read())
    if not named:
        raise Failed("the log does not name the device")
    return {"last_loss": losses[5], "device": named.group(1).strip('"'), "plugin": run.machine.versions()[1]}


def run_gpu_ops(run, *args, prefix=()):
    name, more = ("test_ops_emulated", ["--plugin"]) if run.machine.emulated else ("gpu_ops", [])
    program = run.machine.test_program(name)
    if not program:
        raise Skipped(name + " was not built")
    return run.command([*prefix, program, *more, *args], env=run.machine.test_env())


@check("correctness", "attention", "attention by cuDNN and by the kernels of our own against the CPU device", least=20)
def attention(run):
    program = run.machine.test_program("gpu_attention")
    if run.machine.emulated or not program:
        raise Skipped("gpu_attention was not built" if not program else "CI runs its own build of it")
    said = {}
    for name, env in (("cudnn", {}), ("own", {"DDP_CUDNN": "0"})):
        done = run.command([program], env=dict(run.machine.test_env(), **env))
        if done.code == 77:
            raise Skipped(done.last_words())
        if done.code:
            raise Failed("%s: exit %d, %s" % (name, done.code, done.last_words()))
        said[name] = done.out.strip().splitlines()[-1] if done.out.strip() else "no words"
    return said


def read_errors(said):
    """Reads the output of gpu_ops. Returns the name of each operation and its largest relative error."""
    found = {}
    for line in said.splitlines():
        match = re.match(r"^\s*([a-z][\w/ -]*?):?\s+.*?([0-9.]+e[+-][0-9]+)", line)
        if match:
            name = match.group(1).strip()
            found[name] = max(found.get(name, 0.0), float(match.group(2)))
    return found


@check("correctness", "operations", "every operation and gradient against the CPU device, fp32 and bf16, odd sizes", least=20, most=300)
def every_operation(run):
    done = run_gpu_ops(run, *(CASES if run.quick else []))
    if done.code == 77:
        raise Skipped(done.last_words())
    errors = read_errors(done.out)
    if done.code:
        raise Failed("gpu_ops ended with %d: %s" % (done.code, done.last_words()), {"errors": errors})
    return {"operations": len(errors), "largest_error": max(errors.values(), default=0.0), "errors": errors}


def run_sanitizer(run, tool, *more):
    places = (shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer")
    program = next((p for p in places if p and os.access(p, os.X_OK)), None)
    if run.machine.emulated or not program:
        raise Skipped("no compute-sanitizer" if not program else "it does not know the emulator")
    done = run_gpu_ops(run, *CASES, prefix=[program, "--tool", tool, "--error-exitcode", "99", *more])
    said = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", done.out + done.err)
    if "Device not supported" in done.out + done.err:
        raise Skipped("compute-sanitizer does not support this machine")
    if done.code:
        raise Failed("%s: exit %d, %s" % (tool, done.code, done.last_words()))
    if not said:
        raise Failed("%s gave no summary" % tool)
    return {"errors": sum(int(a or b) for a, b in said)}


@check("correctness", "memcheck", "no access outside of memory, nor leak", least=60, most=240)
def memcheck(run):
    return run_sanitizer(run, "memcheck", "--leak-check", "full")


@check("correctness", "racecheck", "no race in shared memory", least=60, most=240)
def racecheck(run):
    return run_sanitizer(run, "racecheck")


@check("correctness", "initcheck", "no read of device memory that nothing wrote", least=60, most=240)
def initcheck(run):
    return run_sanitizer(run, "initcheck")


@check("correctness", "synccheck", "no barrier that not all reach", least=60, most=240)
def synccheck(run):
    return run_sanitizer(run, "synccheck")
