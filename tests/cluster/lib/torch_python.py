"""Python interpreters with torch for tests. A test that finds no such interpreter skips and says what is missing.

debian() is the one that scripts/setup installs (python3-torch: old; numerics and Gloo work, its torchrun does not start).
recent() is an interpreter whose torchrun works: DDP_TORCH_PYTHON, or the interpreter of `torchrun` in PATH.
"""
import functools
import os
import shutil
import subprocess
import sys


def _says(command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as e:
        return False, str(e)
    return done.returncode == 0, done.stdout.strip()


def imports_torch(python):
    """Returns the version of the interpreter's torch, or None."""
    ok, said = _says([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()\n"
                      "import torch; print(torch.__version__)"])
    return said.splitlines()[-1] if ok else None


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def torch_interpreter():
    """Returns an interpreter that imports torch 1.13 or newer. Skips the test if there is none."""
    python = "/usr/bin/python3"
    if os.path.exists(python) and imports_torch(python):
        return python
    return torchrun_interpreter("no torch in %s (apt install python3-torch)" % python)


@functools.lru_cache(None)
def find_recent():
    """Returns (interpreter, reason). The interpreter is None if no torchrun starts."""
    python = os.environ.get("DDP_TORCH_PYTHON")
    if not python:
        script = shutil.which("torchrun")
        if not script:
            return None, "no torchrun in PATH and DDP_TORCH_PYTHON is not set"
        with open(script, "rb") as f:
            first = f.readline().decode(errors="replace")
        python = first[2:].split()[0] if first.startswith("#!") else sys.executable
    # Debian's torchrun imports torch and prints its --help, but does not start.
    ok, said = _says([python, "-m", "torch.distributed.run", "--standalone", "--no_python", "true"])
    return (python, "") if ok else (None, "torchrun of %s does not start: %s" % (python, said[-300:]))


def torchrun_interpreter(why=None):
    """Returns an interpreter whose torchrun works. Skips the test if there is none."""
    python, wrong = find_recent()
    if not python:
        skip("; ".join(filter(None, [why, wrong])))
    return python


def torchrun(*args):
    """Returns the torchrun command of recent()."""
    return [torchrun_interpreter(), "-m", "torch.distributed.run", *map(str, args)]
