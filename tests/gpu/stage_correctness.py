"""Compares products, attention and all other operations with the CPU device."""
import re

from suite import Failed, Skipped, check


def run_checker(run, real, emulated, *args, env=(), prefix=()):
    """Runs a test program: the one for a GPU, or the one for the emulated device. Raises Skipped if it cannot run here."""
    name = emulated if run.machine.emulated else real
    program = name and run.machine.test_program(name)
    if not program:
        raise Skipped(name + " was not built" if name else "there is none for the emulated device")
    done = run.command([*prefix, program, *args], env=dict(run.machine.test_env(), **dict(env)))
    if done.code == 77:
        raise Skipped(done.last_words())
    return done


def read_errors(said):
    """Reads the output of gpu_ops. Returns the name of each operation and its largest relative error."""
    found = {}
    for line in said.splitlines():
        match = re.match(r"^\s*([a-z][\w/ -]*?):?\s+.*?([0-9.]+e[+-][0-9]+)", line)
        if match:
            name = match.group(1).strip()
            found[name] = max(found.get(name, 0.0), float(match.group(2)))
    return found


def compare_operations(run, *args):
    done = run_checker(run, "gpu_ops", "test_ops_emulated", *args, *(["--quick"] if run.quick else []))
    errors = read_errors(done.out)
    found = {"operations": len(errors), "largest_error": max(errors.values(), default=0.0), "errors": errors}
    if done.code:
        raise Failed(done.ending(), found)
    if not errors or not done.out.endswith("\nall results agree\n"):
        raise Failed("gpu_ops ended before its last line: '%s'" % done.last_words(), found)
    return found


@check("correctness", "products", "operations by the plugin, with products by cuBLASLt, against the CPU device", least=20, most=120)
def products(run):
    return compare_operations(run, "--plugin")


@check("correctness", "attention-cudnn", "attention by cuDNN against the CPU device", least=10, most=60)
def attention_cudnn(run):
    said = run_attention(run, "gpu_attention", "test_attention_cudnn")
    if not re.match(r"cuDNN \d", said["library"]):
        raise Skipped(said["library"])
    if not said["by_cudnn"]:
        raise Failed("cuDNN computed no gradient: it was declined for every shape", said)
    return said


@check("correctness", "attention-own", "attention by the kernels of our own against the CPU device", least=10, most=60)
def attention_own(run):
    return run_attention(run, "gpu_attention", "test_attention_emulated", env={"DDP_CUDNN": "0"})


def run_attention(run, *names, env=(), prefix=()):
    done = run_checker(run, *names, env=env, prefix=prefix)
    lines = [line for line in done.out.splitlines() if line.strip()]
    if done.code:
        raise Failed(next((line for line in lines if line.startswith("FAIL")), done.ending()))
    if "0 failed" not in lines:  # its last line
        raise Failed("gpu_attention ended before its last line: '%s'" % done.last_words())
    compared = [line for line in lines if line.startswith("ok ")]
    return {"library": lines[0], "compared": len(compared), "by_cudnn": len([line for line in compared if "cuDNN" in line])}


@check("correctness", "operations", "every kernel and gradient against the CPU device, fp32 and bf16, odd sizes", least=20, most=120)
def every_operation(run):
    return compare_operations(run)


@check("correctness", "repeats", "products by cuBLASLt 25 or 100 times: the same bits", least=20, most=90)
def repeats(run):
    done = run_checker(run, "gpu_ops", "test_ops_emulated", "--plugin", "--repeat", *(["--quick"] if run.quick else []))
    if done.code:
        raise Failed(done.ending())
    if not done.out.endswith("all results agree\n"):
        raise Failed("gpu_ops ended before its last line: '%s'" % done.last_words())
    return {"products": len(done.out.splitlines()) - 1}


@check("correctness", "plugin", "the plugin through its interface: memory, errors, graphs, waiting", least=10, most=60)
def plugin(run):
    done = run_checker(run, "test_cuda_device", "test_cuda_device")
    passed = re.search(r"(\d+) test\(s\) run", done.out + done.err)
    if done.code:
        raise Failed(done.ending())
    if not passed:
        raise Failed("test_cuda_device ended before its last line: '%s'" % done.last_words())
    return {"tests": int(passed.group(1))}
