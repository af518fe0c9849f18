#!/usr/bin/python3
"""Runs whole trainings with the CUDA plugin on the emulated CUDA of tests/standins/cuda. The losses match those of the CPU device.
The bits are the same in any order of concurrent work, after kills, and when a snapshot moves between devices."""
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from emulated_jobs import GPT, MLP, counted, job_text, largest_difference, snapshot_bits, train  # noqa: E402
from language_text import write_text  # noqa: E402
import snapshot_copy  # noqa: E402
from world import BIN, World, newest, sweep, tensors  # noqa: E402

MOST = {"fp32": 1e-4, "bf16": 2e-2}  # largest relative difference of losses
DEADLINE = 60


def losses_match_the_cpu(directory):
    """The losses are close to those of the CPU device at the same precision."""
    write_text(directory)
    said = []
    for name, model, precision in (("mlp", MLP, "fp32"), ("gpt", GPT, "fp32"), ("gpt", GPT, "bf16")):
        cpu = train(directory, job_text(model, "cpu", out=f"{name}-{precision}-cpu", precision=precision))
        gpu = train(directory, job_text(model, out=f"{name}-{precision}", precision=precision))
        off = largest_difference(gpu, cpu)
        assert off < MOST[precision], (name, precision, off, gpu, cpu)
        first, last = gpu[min(gpu)], gpu[max(gpu)]
        assert last < first, (name, precision, first, last)
        said.append(f"{name} {precision} {off:.1e}")
    # With too little memory for the activations of all layers, they are computed again.
    cpu = train(directory, job_text(GPT, "cpu", out="again-cpu", precision="bf16"))
    gpu = train(directory, job_text(GPT, out="again", precision="bf16"), DDP_EMULATED_MEMORY="4000000000")
    off = largest_difference(gpu, cpu)
    assert off < MOST["bf16"], (off, gpu, cpu)
    assert snapshot_bits(directory, "again") != snapshot_bits(directory, "gpt-bf16"), "the memory makes no difference"
    said.append(f"computed again {off:.1e}")
    return ", ".join(said)


def the_same_bits_in_any_order(directory):
    """Different seeds run blocks, threads and streams in different orders, where nothing else orders them. The bits are the same."""
    write_text(directory)
    for name, model, precision, dropout in (("mlp", MLP, "fp32", 0), ("gpt", GPT, "bf16", 0.1), ("gpt32", GPT, "fp32", 0.1)):
        seen = []
        for seed in ("0", "1", "2") if name == "gpt" else ("0", "1"):
            out = f"{name}-{len(seen)}"
            text = job_text(model, out=out, precision=precision, dropout=dropout, steps=6)
            losses = train(directory, text, DDP_EMULATED_SEED=seed)
            seen.append((losses, snapshot_bits(directory, out)))
        for i, other in enumerate(seen[1:], 1):
            assert other[0] == seen[0][0], (name, i, largest_difference(other[0], seen[0][0]))
            assert other[1] == seen[0][1], (name, i)


def killed_and_resumed(directory):
    """A job that is killed after a snapshot and resumed has the result of an undisturbed run."""
    write_text(directory)
    text = job_text(GPT, out="killed", precision="bf16", dropout=0.1, steps=3000, every=5)
    committed = {}
    with World(directory, text, snapshots=committed) as w:
        until = time.monotonic() + DEADLINE
        while not w.rendezvous.commits:
            assert time.monotonic() < until and w.ranks[0].process.poll() is None, w.ranks[0].err
            time.sleep(0.01)  # polling interval
        w.judging = False
        os.kill(w.ranks[0].process.pid, signal.SIGKILL)
        w.wait()
    last = max(step for _, step in committed)
    text = text.replace("steps: 3000", f"steps: {last + 3}")
    with World(directory, text, snapshots=committed, generation=2) as w:
        w.run()
        first = min(r["step"] for r in w.ranks[0].reports if "loss" in r)
    assert first == last + 1, (first, committed)
    train(directory, text.replace("killed", "whole"))
    assert snapshot_bits(directory, "killed") == snapshot_bits(directory, "whole")
    return f"killed after step {last}"


def snapshots_are_copied_beside_computing(directory):
    """On a stream of its own. The seeds let the copy and the kernels of the next step run in different orders."""
    write_text(directory)
    for seed in ("0", "1"):
        text = job_text(GPT.replace("path: input", f"path: {directory}/input"), steps=12, precision="bf16", dropout=0.1)
        os.environ["DDP_EMULATED_SEED"] = seed
        try:
            snapshot_copy.the_next_step_runs_beside_the_copy(f"{directory}/{seed}", text, world=1)
            if seed == "1":
                snapshot_copy.killed_in_the_copy(f"{directory}/{seed}", job_text(MLP, steps=12), world=1)
        finally:
            del os.environ["DDP_EMULATED_SEED"]


def chosen_algorithms_are_kept(directory):
    """With DDP_CUDA_TUNE the bits depend on measured times, and a snapshot keeps the chosen algorithms. The same bits come from a
    run that continues from the snapshot, from all ranks of a run, and from a run that is given the file. On another kind of
    GPU, algorithms are chosen again."""
    write_text(directory)
    bits = {}

    def run(out, fastest, steps=4, tune="1", world=1, **more):
        text = job_text(GPT, out=out, precision="bf16", steps=steps, every=2, extra="resume: continue")
        env = {r: dict(DDP_CUDA_TUNE=tune, DDP_EMULATED_FASTEST=fastest[r], **more) for r in range(world)}
        with World(directory, text, world=world, env=env) as w:
            w.run()
            # The GPU's clock measures this share of the time. With DDP_EMULATED_FASTEST only products take time on that clock.
            assert world == 1 or {r["exposed"] for r in w.ranks[0].reports if "exposed" in r} == {0}, w.ranks[0].reports
            return w.ranks[0].err

    for fastest in ("0", "1"):
        run(f"whole-{fastest}", fastest)
        bits[fastest] = snapshot_bits(directory, f"whole-{fastest}")
    assert bits["0"] != bits["1"], "the algorithms do not change the bits, so this test shows nothing"
    run("parts", "0", steps=2)
    run("parts", "1")
    assert snapshot_bits(directory, "parts") == bits["0"], "other algorithms after the restart"
    run("given", "1", tune=os.path.join(newest(f"{directory}/whole-0"), "algorithms.txt"))
    assert snapshot_bits(directory, "given") == bits["0"], "other algorithms than the file's"
    for second in ("0", "1"):
        run(f"ranks-{second}", "0" + second, steps=2, world=2)
    assert snapshot_bits(directory, "ranks-0") == snapshot_bits(directory, "ranks-1"), "a rank has algorithms of its own"
    said = run("parts", "0", steps=6, DDP_EMULATED_NAME="Emulated B200")
    assert "event=algorithms_chosen_anew" in said and "Emulated H200" in said, said
    with open(os.path.join(newest(f"{directory}/parts"), "algorithms.txt")) as f:
        assert "device Emulated B200, " in f.read()


def layers_are_computed_again(directory):
    """`recompute: block` needs less memory and gives the same bits."""
    write_text(directory)
    kept = {}
    for again in ("none", "block"):
        with World(directory, job_text(GPT, out=again, precision="bf16", dropout=0.1, steps=3, every=3, extra=f"recompute: {again}")) as w:
            w.run()
            kept[again] = next(r["activation_bytes"] for r in w.ranks[0].reports if "activation_bytes" in r)
    assert snapshot_bits(directory, "block") == snapshot_bits(directory, "none")
    assert kept["block"] < kept["none"], kept
    return "%(block)d of %(none)d bytes" % kept


def from_one_device_to_the_other(directory):
    write_text(directory)
    text = job_text(GPT, "cpu", out="whole", steps=10)
    whole = train(directory, text)
    for first, then in (("cpu", "cuda"), ("cuda", "cpu")):
        out = f"{first}-{then}"
        train(directory, job_text(GPT, first, steps=5, out=out))
        losses = train(directory, job_text(GPT, then, steps=10, out=out, extra="resume: continue"))
        assert min(losses) == 6, losses
        off = largest_difference(losses, {s: whole[s] for s in losses})
        assert off < 1e-4, (first, then, off)


def several_ranks_like_one(directory):
    """The same job on 1, 2 and 4 ranks, on one node and on two: nearly the same losses. A divided optimizer gives the same bits."""
    write_text(directory)
    said = []
    for name, model in (("mlp", MLP), ("gpt", GPT)):
        one = train(directory, job_text(model, out=f"{name}-1", steps=5))
        for world, nodes in ((2, 1), (4, 2)):
            text = job_text(model, out=f"{name}-{world}", steps=5)
            off = largest_difference(train(directory, text, world=world, nodes=nodes, DDP_EMULATED_SEED=str(nodes)), one)
            assert off < 1e-4, (name, world, off)
            said.append(f"{name} on {world} {off:.1e}")
    counts = os.path.join(directory, "counts")
    text = job_text(GPT, out="parts", steps=5, precision="bf16")
    whole = train(directory, text.replace("parts", "whole"), world=2)
    parts = train(directory, text + "  shard: optimizer\n", world=2, DDP_STANDIN_NCCL_COUNTS=counts)
    assert parts == whole and snapshot_bits(directory, "parts") == snapshot_bits(directory, "whole"), (parts, whole)
    # In each step a sum of the tail, the parts of each bucket, and one gather. The moments stay where they are.
    assert all(c["sums"] == 5 and c["scatters"] >= 5 and c["gathers"] + c["broadcasts"] >= 5 for c in counted(counts)), counted(counts)
    # Between the steps at which parameters are compared, matrices travel as bf16: the same bits.
    packed = train(directory, text.replace("parts", "packed").replace("log_every: 1", "log_every: 3") + "  shard: optimizer\n", world=2)
    assert packed == {s: whole[s] for s in packed} and len(packed) < 4, (packed, whole)
    assert snapshot_bits(directory, "packed") == snapshot_bits(directory, "whole")
    return ", ".join(said)


def sums_of_several_ranks(directory):
    """Sums as bf16, and with reproducible: world the same bits on 1, 2 and 4 ranks."""
    write_text(directory)
    # Half the bytes with gradients as bf16. The tail stays fp32. Ring or parts, on two ranks a value is rounded in the same places.
    sums = {}
    for out, sync, shard in (("fp32", "fp32", "none"), ("bf16", "bf16", "none"), ("bf16-parts", "bf16", "optimizer")):
        at = os.path.join(directory, "counts-" + out)
        losses = train(directory, job_text(GPT, out=out, steps=5, extra=f"sync: {{type: allreduce, wire: {sync}}}\n  shard: {shard}"), world=2,
                       DDP_STANDIN_NCCL_COUNTS=at)
        sums[out] = (counted(at)[0]["sum_bytes"], losses, snapshot_bits(directory, out))
    tail = 5 * 64
    assert 2 * (sums["bf16"][0] - tail) == sums["fp32"][0] - tail and sums["bf16"][0] == sums["bf16-parts"][0], [s[0] for s in sums.values()]
    assert sums["bf16"][1:] == sums["bf16-parts"][1:] and sums["bf16"][2] != sums["fp32"][2]
    off = largest_difference(sums["bf16"][1], sums["fp32"][1])
    assert off < 2e-3, off
    same = []
    for world, nodes in ((1, 1), (2, 1), (4, 2)):
        out = f"world-{world}"
        text = job_text(GPT, out=out, steps=6, extra="reproducible: world\n  shards: 4", dropout=0.1)
        same.append((train(directory, text, world=world, nodes=nodes), snapshot_bits(directory, out)))
    assert same[1:] == same[:-1], "reproducible: world, but other bits"
    return f"wire bf16 {off:.1e}"


def state_crosses_nccl(directory):
    """Ranks that have no snapshot of their own get the state from device to device, not through the host. A generation after a
    failure does not measure the peak, which would make it wait longer."""
    write_text(directory)
    text = job_text(GPT, out="spread", precision="bf16", steps=4, every=4, extra="sync: {type: allreduce}")
    committed = {}
    with World(directory, text, world=2, snapshots=committed) as w:
        w.run()
        assert any("peak_share" in r for r in w.ranks[0].reports), w.ranks[0].reports
    counts = os.path.join(directory, "counts")
    text = text.replace("steps: 4", "steps: 6")
    with World(directory, text, world=2, snapshots=committed, generation=2,
               env={r: {"DDP_STANDIN_NCCL_COUNTS": counts} for r in range(2)}) as w:
        w.run()
        resumed, sizes = w.ranks[0].reports[0], [r for r in w.ranks[0].reports if "parameter_bytes" in r][0]
        seen = {r["step"]: r["loss"] for r in w.ranks[0].reports if "loss" in r}
        assert not any("peak_share" in r for r in w.ranks[0].reports), w.ranks[0].reports
    assert min(seen) == 5, seen
    state = int(sizes["parameters"]) * 4 * 3  # parameters and two moments, all floats
    for line in counted(counts):
        assert line["broadcasts"] == 2 and line["broadcast_bytes"] >= state, (line, state)
        assert line["blocks"] == 8 and line["variables"] == 3, line  # reproducible: layout
    assert resumed["sync_bytes"] < state / 2, (resumed, state)
    whole = train(directory, text.replace("spread", "whole"), world=2)
    assert seen == {s: whole[s] for s in seen}, (seen, whole)
    assert snapshot_bits(directory, "spread") == snapshot_bits(directory, "whole")
    # The same without NCCL: slowly, through the host, and with a line that says so.
    with World(directory, text.replace("spread", "staged"), world=2,
               env={r: {"DDP_STANDIN_NCCL_FAULT": "missing"} for r in range(2)}) as w:
        w.run()
        for rank in w.ranks:
            said = [line for line in rank.err.splitlines() if "event=sums_through_host" in line]
            assert len(said) == 1 and "plays a machine without it" in said[0] and "install NCCL" in said[0], rank.err
    return "%d bytes" % state


def nccl_chooses_the_order(directory):
    """With `reproducible: none` NCCL chooses algorithm, protocol and number of blocks."""
    counts = os.path.join(directory, "counts")
    text = job_text(MLP, steps=2, extra="reproducible: none")
    with World(directory, text, world=2, env={r: {"DDP_STANDIN_NCCL_COUNTS": counts} for r in range(2)}) as w:
        w.run()
    assert [(line["blocks"], line["variables"]) for line in counted(counts)] == [(0, 0)] * 2, counted(counts)


def one_rank_needs_no_nccl(directory):
    """On a machine without NCCL one rank trains on its GPU, and the log does not complain."""
    write_text(directory)
    with World(directory, job_text(GPT, precision="bf16", steps=2), env={0: {"DDP_STANDIN_NCCL_FAULT": "missing"}}) as w:
        w.run()
        err = w.ranks[0].err
    assert "Emulated" in err and "NCCL" not in err, err
    asked = subprocess.run([f"{BIN}/ddp-trainer", "--plugin"], env=dict(os.environ, DDP_STANDIN_NCCL_FAULT="missing"),
                           capture_output=True, text=True, timeout=60)
    said = json.loads(asked.stdout)
    assert asked.returncode == 0 and said["nccl"] == "missing" and "plays a machine without it" in said["why"], said
    said = json.loads(subprocess.run([f"{BIN}/ddp-trainer", "--plugin"], capture_output=True, text=True, timeout=60).stdout)
    assert said["nccl"] == "2.28.9" and "why" not in said, said


def the_kernels_of_attention_are_named(directory):
    """One line of the log names the kernels and says why cuDNN's are not used. The line with the sizes names the kernels, too."""
    write_text(directory)
    for precision, kernels in (("bf16", "own"), ("fp32", "plain")):
        with World(directory, job_text(GPT, precision=precision, steps=2, out=precision)) as w:
            w.run()
            err = w.ranks[0].err
        said = [line for line in err.splitlines() if "event=attention" in line]
        assert len(said) == 1 and f" forward={kernels} forward_why=" in said[0] and f" backward={kernels} " in said[0] and \
            "built without it" in said[0] and " workspace_bytes=" in said[0], said
        assert f'attention by {kernels} kernels"' in err, err
    with World(directory, job_text(MLP, steps=2, out="mlp")) as w:  # has no attention
        w.run()
        assert "attention" not in w.ranks[0].err, w.ranks[0].err


def memory_that_is_not_there(directory):
    """Out of memory gives one clear line, and no crash."""
    write_text(directory)
    os.environ["DDP_EMULATED_MEMORY"] = "100000"
    try:
        with World(directory, job_text(GPT)) as w:
            codes = w.wait()
            assert codes == [78] or codes[0] not in (0, -signal.SIGSEGV, -signal.SIGABRT), codes
            assert "bytes" in w.ranks[0].err or "memory" in w.ranks[0].err, w.ranks[0].err[-500:]
            return w.ranks[0].err.strip().splitlines()[-1][:150]
    finally:
        del os.environ["DDP_EMULATED_MEMORY"]


def a_fault_of_the_device(directory):
    """After a certain number of CUDA calls, every call fails. The process exits with the reason and never continues with wrong
    numbers. Its exit code says that a new process may succeed, even if the error comes while the GPU is opened."""
    write_text(directory)
    for call in (3, 6, 12, 18, 24, 40, 150, 400, 800):
        os.environ["DDP_EMULATED_FAULT"] = str(call)
        try:
            with World(directory, job_text(GPT, out=f"fault-{call}", steps=10)) as w:
                codes = w.wait()
                assert codes == [1], (call, codes, w.ranks[0].err[-500:])
                assert "unspecified launch failure" in w.ranks[0].err or "cuda" in w.ranks[0].err.lower(), w.ranks[0].err
        finally:
            del os.environ["DDP_EMULATED_FAULT"]


def read_snapshots(directory, out):
    """Returns {step: parameters} of all snapshots."""
    found = {}
    for name in os.listdir(f"{directory}/{out}"):
        path = f"{directory}/{out}/{name}/model.safetensors"
        if os.path.exists(path):
            found[int(name.split("-")[1])] = tensors(path)
    return found


def one_rank_skips_a_kernel(directory):
    """On rank 1 one kernel does not run, but all kernels after it do. Rank 0 neither reports nor keeps any result that rank 1
    contributed to, and reports a lost peer, not an error of its own."""
    write_text(directory)
    whole = train(directory, job_text(MLP, out="whole", steps=6, every=1), world=2)
    kept = read_snapshots(directory, "whole")
    for launch in (20, 24, 28, 32):  # the second step and later ones
        out = f"mishap-{launch}"
        skips = {1: {"DDP_EMULATED_MISHAP": str(launch)}}
        with World(directory, job_text(MLP, out=out, steps=6, every=1), world=2, env=skips) as w:
            assert w.wait() == [75, 1], (launch, [r.err[-500:] for r in w.ranks])
            assert "invalid configuration argument" in w.ranks[1].err and "peer lost" in w.ranks[0].err, launch
            seen = {r["step"]: r["loss"] for r in w.ranks[0].reports if "loss" in r}
        assert seen == {s: whole[s] for s in seen}, (launch, seen, whole)
        assert all(model == kept[step] for step, model in read_snapshots(directory, out).items()), launch


def train_with_stuck_nccl(directory, fault, found):
    os.mkdir(f"{directory}/{fault}")
    with World(f"{directory}/{fault}", job_text(MLP, steps=6, every=1), world=2, env={1: {"DDP_STANDIN_NCCL_FAULT": fault}}) as w:
        codes = w.wait()
        found[fault] = codes, max([c.step for c in w.rendezvous.commits], default=0), w.ranks[1].err


def collectives_that_do_not_end(directory):
    """A process that is stuck in NCCL exits nevertheless, with the exit code of its job: succeeded or failed."""
    # The first also has hang-in-abort, because the group is aborted after rank 0 has exited.
    found, faults = {}, ("hang-in-destroy,hang-in-abort", "init-fails,hang-in-abort")
    # both at the same time, because each takes 10 s
    threads = [threading.Thread(target=train_with_stuck_nccl, args=(directory, fault, found)) for fault in faults]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fault, (codes, step) in zip(faults, (([0, 0], 6), ([75, 1], 0))):
        assert found[fault][:2] == (codes, step), found[fault]
        assert "event=device_stuck rank=1" in found[fault][2], found[fault][2]


def ranks_measure_their_devices(directory):
    """`measure` prints the rates of each rank's device, and whom it met for all-reduces. A node that is idle for most of the time is
    slower in all rates."""
    job = job_text(MLP, extra="measure: 200ms")
    with World(directory, job, world=2, nodes=2, env={1: {"DDP_TEST_SLOW_NODE": "node1:8"}}) as w:
        w.run()
        told = [json.loads(line.removeprefix("partners ")) for line in w.ranks[0].out.splitlines()]
    lines = [x for x in told if "node" in x]
    assert [(x["rank"], [p["rank"] for p in x["partners"]]) for x in told if "partners" in x] == [(0, [1]), (1, [0])], told
    assert [(x["rank"], x["node"], x["device"]) for x in lines] == [(0, "node0", "cuda"), (1, "node1", "cuda")], lines
    assert lines[0]["model"] == lines[1]["model"], lines
    for name in ("matrix", "memory", "upload", "download"):
        assert 0 < lines[1][name] <= lines[1][name + "_best"] < lines[0][name + "_best"], (name, lines)


sweep("emulated", (losses_match_the_cpu, the_same_bits_in_any_order, killed_and_resumed, chosen_algorithms_are_kept, layers_are_computed_again,
                   several_ranks_like_one, state_crosses_nccl, nccl_chooses_the_order, one_rank_needs_no_nccl, the_kernels_of_attention_are_named,
                   memory_that_is_not_there, a_fault_of_the_device, one_rank_skips_a_kernel,
                   collectives_that_do_not_end, ranks_measure_their_devices),
      (sums_of_several_ranks, snapshots_are_copied_beside_computing, from_one_device_to_the_other))
