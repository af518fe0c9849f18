"""Runs compute-sanitizer's four tools on the checkers. The attention kernels come first: only they use asynchronous copies
(cp.async) and ldmatrix, so a race is most likely there."""
import re

import stage_machine
from stage_correctness import run_checker
from suite import Failed, Skipped, check


def sanitize(run, tool, checker, *args, more=(), env=()):
    program = stage_machine.sanitizer()
    if run.machine.emulated or not program:
        raise Skipped("no compute-sanitizer" if not program else "compute-sanitizer does not know the emulated device")
    done = run_checker(run, checker, None, *args, env=env, prefix=[program, "--tool", tool, "--error-exitcode", "99", *more])
    said = re.findall(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", done.out + done.err)
    if "Device not supported" in done.out + done.err:
        raise Skipped("compute-sanitizer does not support this machine")
    if done.code:
        raise Failed("%s: %s" % (tool, done.ending()))
    if not said:
        raise Failed("%s gave no summary" % tool)
    return {"errors": sum(int(a or b) for a, b in said)}


def over_attention(run, tool, *more):
    return sanitize(run, tool, "gpu_attention", more=more, env={"DDP_CUDNN": "0"})


def over_operations(run, tool, *more):
    return sanitize(run, tool, "gpu_ops", "--quick", more=more)


@check("sanitizers", "racecheck-attention", "no race in shared memory in the attention kernels", least=30, most=150)
def racecheck_attention(run):
    return over_attention(run, "racecheck")


@check("sanitizers", "memcheck-attention", "no access outside of memory in the attention kernels", least=30, most=150)
def memcheck_attention(run):
    return over_attention(run, "memcheck")


@check("sanitizers", "memcheck", "no access outside of memory, nor leak, in the other kernels", least=30, most=150)
def memcheck(run):
    return over_operations(run, "memcheck", "--leak-check", "full")


@check("sanitizers", "racecheck", "no race in shared memory in the other kernels", least=30, most=150)
def racecheck(run):
    return over_operations(run, "racecheck")


@check("sanitizers", "initcheck", "no read of device memory that nothing wrote", least=30, most=150)
def initcheck(run):
    return over_operations(run, "initcheck")


@check("sanitizers", "synccheck", "no barrier that not all threads reach", least=30, most=150)
def synccheck(run):
    return over_operations(run, "synccheck")
