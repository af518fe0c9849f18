"""Interpreters with torch, for the tests that want one; a test that finds none skips and says what is missing.

debian() is what scripts/setup installs (python3-torch: old, but numerics and Gloo work; its torchrun does not start).
recent() is an interpreter whose torchrun works: DDP_TORCH_PYTHON, or what `torchrun` in PATH belongs to.
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
    """The version of its torch, or None."""
    ok, said = _says([python, "-c", "import torch.distributed as d; assert d.is_gloo_available()\n"
                      "import torch; print(torch.__version__)"])
    return said.splitlines()[-1] if ok else None


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def debian():
    """An interpreter that imports torch, any version from 1.13 on; skips the test where there is none."""
    python = "/usr/bin/python3"
    if os.path.exists(python) and imports_torch(python):
        return python
    return recent("no torch in %s (apt install python3-torch)" % python)


@functools.lru_cache(None)
def find_recent():
    """(interpreter, what is wrong): the interpreter is None where no torchrun starts."""
    python = os.environ.get("DDP_TORCH_PYTHON")
    if not python:
        script = shutil.which("torchrun")
        if not script:
            return None, "no torchrun in PATH and DDP_TORCH_PYTHON is not set"
        with open(script, "rb") as f:
            first = f.readline().decode(errors="replace")
        python = first[2:].split()[0] if first.startswith("#!") else sys.executable
    # Debian's imports, prints its --help, and then does not start.
    ok, said = _says([python, "-m", "torch.distributed.run", "--standalone", "--no_python", "true"])
    return (python, "") if ok else (None, "torchrun of %s does not start: %s" % (python, said[-300:]))


def recent(why=None):
    """An interpreter whose torchrun works; skips the test where there is none."""
    python, wrong = find_recent()
    if not python:
        skip("; ".join(filter(None, [why, wrong])))
    return python


def torchrun(*args):
    """torchrun as a command, of recent()."""
    return [recent(), "-m", "torch.distributed.run", *map(str, args)]
