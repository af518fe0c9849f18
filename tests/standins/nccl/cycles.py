#!/usr/bin/python3
"""nccl_cycles passes if communicators release everything, and fails if they leak."""
import os
import re
import subprocess

BUILD = os.environ["DDP_BUILD"]


def cycles(count, fault=""):
    """Returns the exit code and the figures."""
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="0", DDP_STANDIN_NCCL_FAULT=fault,
               DDP_CUDA_PLUGIN=os.path.join(BUILD, "lib", "ddp_emulated", "libddp_cuda.so"))
    done = subprocess.run([os.path.join(BUILD, "tests", "nccl_cycles"), str(count)], env=env, capture_output=True, text=True,
                          timeout=60)
    return done.returncode, {name: int(value) for name, value in re.findall(r"(\w+)=(-?\d+)", done.stdout)}, done.stderr


code, found, said = cycles(80)
assert code == 0 and found["less_free_mib"] == 0, (code, found, said)
code, found, said = cycles(80, "leak")
assert code == 1 and found["less_free_mib"] >= 70 and found["more_kb"] >= 70 * 1024, (code, found, said)
