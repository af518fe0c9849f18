#!/usr/bin/python3
"""Tests snapshots of running jobs: kill and resume to the same bits, in mid-epoch, in mid-round and at other world sizes; clean
stops; and the messages of workers whose peers are lost."""
import glob
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, difference, model, newest, part, raw, sweep, tensors, whole_file  # noqa: E402

JOB = """
name: t
device: cpu
train:
  tutorial_lines: true
  model: {{type: mlp, sizes: [12, 64, 3], activation: tanh}}
  data: {{type: synthetic, samples: 1000}}
  optimizer: {optimizer}
  schedule: {{type: cosine, warmup: 5}}
  global_batch: 60
  steps: {steps}
  seed: 5
  sync: {sync}
  snapshot: {{dir: out, every: {every}, keep: {keep}{best}}}
  resume: {resume}
  log_every: 1
"""
LONG = 200  # steps
ADAMW = "{type: adamw, lr: 3.0e-3, clip: 1.0}"
MUON = "{type: muon, clip: 1.0, adamw: {lr: 3.0e-3}}"
AVERAGE = "{type: average, every: 16}"
DILOCO = "{type: diloco, every: 16, wire: int4, warm: 9}"


def job(steps=200, every=11, keep=3, optimizer=ADAMW, sync="{type: allreduce}", resume="auto", best=""):
    return JOB.format(steps=steps, every=every, keep=keep, optimizer=optimizer, sync=sync, resume=resume, best=best)


def long_job(sync="{type: allreduce}", optimizer=ADAMW):
    """The loss falls for a long time, so each evaluation finds a new best, and training waits until the previous best is saved. If
    a rank is killed in the commit of a snapshot from step 40 on, the others are not beyond step 80."""
    return job(steps=LONG, sync=sync, optimizer=optimizer, best=", keep_best: 1") + "  eval: {every: 40}\n"


FILES = ("model.safetensors", "optimizer.safetensors")


def same_bits(a, b, files=FILES):
    for name in files:
        assert raw(a, name) == raw(b, name), f"{name} differs"


def interrupted(directory, text, world, nodes, then=None, victim=1, between=None):
    """Kills a rank while a snapshot is committed, then forms the next generation.
    then: its ranks and nodes. between: called before it, with the directory of snapshots and their committed digests."""
    committed = {}
    with World(f"{directory}/cut", text, world=world, nodes=nodes, snapshots=committed) as w:
        w.kill_at_commit(victim, 40)
        codes = w.wait()
        assert codes[victim] == -signal.SIGKILL, codes
        others = [c for r, c in enumerate(codes) if r != victim]
        assert others == [75] * (world - 1), codes
        assert all("peer lost: " in r.err for r in w.ranks if r.rank != victim), [r.err for r in w.ranks]
    if between:
        between(f"{directory}/cut/out", committed)
    world, nodes = then or (world, nodes)
    with World(f"{directory}/cut", text, world=world, nodes=nodes, snapshots=committed, generation=2) as w:
        w.run()
        first = w.ranks[0].reports[0]["step"]
        assert 40 <= first <= 80, first
        assert "Resuming training from snapshot at Epoch " in w.ranks[0].out, w.ranks[0].out
        return first


def killed_rank_ends_with_the_same_bits(directory):
    text = long_job()
    with World(f"{directory}/whole", text, world=4, nodes=2) as w:
        w.run()
    step = interrupted(directory, text, 4, 2)
    same_bits(f"{directory}/whole/out", f"{directory}/cut/out")
    return f"resumed at step {step}"


def equal_runs_write_equal_files(directory):
    """Runs that differ only in cluster, job number or generation write the same tensors. The committed digests differ."""
    for name, sync in (("all", "{type: allreduce}"), ("average", AVERAGE), ("diloco", DILOCO)):
        digests, runs = set(), (("c1", 7, 1), ("c1", 12345, 1), ("another", 7, 1), ("c1", 7, 30))
        for i, (cluster, number, generation) in enumerate(runs):
            text = job(40, sync=sync, best=", keep_best: 1") + "  eval: {every: 10}\n"
            with World(f"{directory}/{name}/{i}", text, world=2, nodes=2, cluster=cluster, job_id=number, generation=generation) as w:
                w.run()
                digests.add(w.rendezvous.commits[-1].digest)
            first, out = f"{directory}/{name}/0/out", f"{directory}/{name}/{i}/out"
            same_bits(first, out, FILES if name == "all" else ["model.safetensors"])
            if name != "all":
                assert [part(first, rank) for rank in range(2)] == [part(out, rank) for rank in range(2)], (name, i)
            with open(os.path.join(newest(out), "run.json")) as f:
                assert json.load(f) == {"cluster": cluster, "job": number, "generation": generation}
        assert len(digests) == len(runs), digests


def make_old_form(path):
    """Rewrites a snapshot as earlier versions wrote it: the header of each file of tensors names the run. Returns its digest."""
    with open(f"{path}/run.json") as f:
        run = json.load(f)
    os.remove(f"{path}/run.json")
    for name in FILES:
        data = whole_file(f"{path}/{name}")
        length = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + length])
        header["__metadata__"].update({f"ddp.{key}": str(value) for key, value in run.items()})
        text = json.dumps(header, separators=(",", ":")).encode()
        with open(f"{path}/{name}", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data[8 + length:])
    files = {name: hashlib.sha256(whole_file(f"{path}/{name}")).hexdigest() for name in FILES}
    lines = "".join(f"{files[name]}  {name}\n" for name in sorted(files))
    digest = hashlib.sha256(lines.encode()).hexdigest()
    if os.path.exists(f"{path}/COMMITTED.json"):  # the kill may have prevented this file
        with open(f"{path}/COMMITTED.json") as f:
            committed = json.load(f)
        with open(f"{path}/COMMITTED.json", "w") as f:
            json.dump(dict(committed, files=files, digest=digest), f)
    return digest


def snapshots_of_earlier_versions_resume(directory):
    text = long_job()
    with World(f"{directory}/whole", text, world=2) as w:
        w.run()

    def make_old(out, committed):
        for path in glob.glob(f"{out}/step-*-g1"):
            committed[1, int(os.path.basename(path)[5:].split("-")[0])] = make_old_form(path)

    step = interrupted(directory, text, 2, 1, between=make_old)
    same_bits(f"{directory}/whole/out", f"{directory}/cut/out")
    return f"resumed at step {step}"


def muon_resumes_to_the_same_bits(directory):
    """Muon resumes with the same bits, also in the middle of a round. The snapshot has one moment for each matrix that Muon
    updates, and two for each other parameter."""
    for name, sync, files in (("all", "{type: allreduce}", FILES), ("round", AVERAGE, ["model.safetensors"])):
        text = long_job(sync, MUON)
        with World(f"{directory}/{name}/whole", text, world=2) as w:
            w.run()
        interrupted(f"{directory}/{name}", text, 2, 1)
        for file in files:
            assert raw(f"{directory}/{name}/whole/out", file) == raw(f"{directory}/{name}/cut/out", file), (name, file)
    assert part(f"{directory}/round/whole/out", 1) == part(f"{directory}/round/cut/out", 1)
    moments = sorted(tensors(os.path.join(newest(f"{directory}/all/cut/out"), "optimizer.safetensors")))
    assert moments == ["layers.0.bias.exp_avg", "layers.0.bias.exp_avg_sq", "layers.0.weight.momentum",
                       "layers.1.bias.exp_avg", "layers.1.bias.exp_avg_sq", "layers.1.weight.exp_avg",
                       "layers.1.weight.exp_avg_sq"], moments


def another_optimizer_is_refused(directory):
    with World(directory, job(steps=40, optimizer=MUON), world=1) as w:
        w.run()
    with World(directory, job(steps=80, resume="continue"), world=1, generation=2) as w:
        assert w.wait() == [78]
        assert "expected 8 tensors for the job's model and optimizer, got 7" in w.ranks[0].err, w.ranks[0].err


def changes_strategy(directory, optimizer, strategies):
    """Each run continues the snapshot of the run before by another strategy. Afterwards it has the arrays of that strategy alone."""
    said = []
    for i, sync in enumerate(strategies):
        text = job(20 * (i + 1), optimizer=optimizer, sync=sync, resume="continue")
        with World(directory, text, world=2, generation=i + 1) as w:
            w.run()
            first = w.ranks[0].reports[0]
        assert first["step"] == 20 * i, (sync, first)
        assert ("sync_every" in first) == (sync == "auto"), first
        bits = first["sync_bits"] if sync == "auto" and first["sync_every"] > 1 else 4 if "int4" in sync else 32
        rounds = first["sync_every"] > 1 if sync == "auto" else "diloco" in sync
        here, arrays = newest(f"{directory}/out"), set()
        for name in glob.glob(f"{here}/*.safetensors") + glob.glob(f"{directory}/out/parts-{os.path.basename(here)}-j*/*"):
            arrays |= {tensor.split(".")[-1] for tensor in tensors(name)}
        kept = arrays & {"outer_momentum", "feedback"}
        assert kept == ({"outer_momentum"} if rounds else set()) | ({"feedback"} if rounds and bits < 32 else set()), (sync, arrays)
        said.append("auto: rounds" if sync == "auto" and rounds else "auto: all-reduce" if sync == "auto" else sync)
    return said


ALL, FP32, INT4 = "{type: allreduce}", "{type: diloco, every: 8}", "{type: diloco, every: 8, wire: int4}"


def another_strategy_continues(directory):
    said = changes_strategy(f"{directory}/adamw", ADAMW, [ALL, "auto", ALL, INT4, "auto", FP32, "auto", INT4, ALL, AVERAGE, INT4, AVERAGE])
    changes_strategy(f"{directory}/sgd", "{type: sgd, lr: 0.01}", [ALL, "auto", ALL, INT4, "auto", FP32, ALL])
    return ", ".join(sorted({s for s in said if s.startswith("auto")}))


def a_complete_run_has_no_choice(directory):
    for generation in (1, 2):
        with World(directory, job(20, sync="auto", resume="continue"), world=2, generation=generation) as w:
            w.run()
            reports = w.ranks[0].reports
        assert any("sync_every" in r for r in reports) == (generation == 1), reports
        assert "parameters" in reports[0], reports


def resume_in_mid_round(directory, sync):
    """A snapshot of the best evaluation may be taken within a round. Each rank's part has its parameters, its moments and the
    position in the round."""
    text = long_job(sync)
    with World(f"{directory}/whole", text, world=4, nodes=2) as w:
        w.run()
    step = interrupted(directory, text, 4, 2)
    assert step % 16, step
    same_bits(f"{directory}/whole/out", f"{directory}/cut/out", ["model.safetensors"])
    for rank in range(4):
        assert part(f"{directory}/whole/out", rank) == part(f"{directory}/cut/out", rank), rank
    return f"resumed at step {step}, {step % 16} steps into a round"


def averaging_resumes_in_mid_round(directory):
    return resume_in_mid_round(directory, AVERAGE)


def diloco_resumes_in_mid_round(directory):
    return resume_in_mid_round(directory, DILOCO)


def diloco_of_one_resumes_in_mid_round(directory):
    """With a world size of one there is also a shared model beside the parameters."""
    text = long_job(DILOCO)
    with World(f"{directory}/whole", text, world=1) as w:
        w.run()
    step = interrupted(directory, text, 1, 1, victim=0)
    same_bits(f"{directory}/whole/out", f"{directory}/cut/out", ["model.safetensors"])
    assert part(f"{directory}/whole/out", 0) == part(f"{directory}/cut/out", 0)
    return f"resumed at step {step}"


def resumes_at_another_world_size(directory):
    text = long_job()
    with World(f"{directory}/whole", text, world=1) as w:
        w.run()
    notes = []
    for then in ((2, 1), (5, 1)):
        step = interrupted(f"{directory}/{then[0]}", text, 4, 2, then=then)
        away = difference(model(f"{directory}/whole/out"), model(f"{directory}/{then[0]}/cut/out"))
        assert away < 1e-4, away
        notes.append(f"{then[0]} ranks from step {step}: {away:.0e} from one rank")
    return ", ".join(notes)


def averaging_resumes_at_another_world_size(directory):
    for name, sync in (("average", AVERAGE), ("diloco", DILOCO)):
        interrupted(f"{directory}/{name}", long_job(sync), 4, 2, then=(3, 1))


def another_clusters_job_of_the_same_number(directory):
    """Two calls of `ddpctl run`, one after the other, have the same job number 1, but each has a cluster of its own."""
    with World(directory, job(steps=40), world=2, cluster="c1") as w:
        w.run()
    for resume in ("auto", "never"):  # neither may overwrite the existing snapshots
        with World(directory, job(steps=60, resume=resume), world=2, cluster="c2") as w:
            codes = w.wait()
            assert codes[0] == 78 and codes[1] in (75, 78), codes
            said = "out holds snapshots of another run (step 40): to continue that run, use --set train.resume=continue; "
            assert said in w.ranks[0].err, w.ranks[0].err
    with World(directory, job(steps=60, keep=1, resume="continue"), world=2, cluster="c2") as w:
        w.run()
        assert w.ranks[0].reports[0]["step"] == 40, w.ranks[0].reports[0]
    assert os.path.exists(f"{directory}/out/step-40-g1") and os.path.exists(f"{directory}/out/step-60-g1")


def each_node_keeps_its_own_copy(directory):
    committed = {}
    with World(directory, job(steps=40), world=4, nodes=2, snapshots=committed, own_dirs=True) as w:
        w.run()
        assert sorted({c.rank for c in w.rendezvous.commits}) == [0, 2], w.rendezvous.commits
    for name in FILES:
        assert raw(f"{directory}/node0/out", name) == raw(f"{directory}/node1/out", name)
    with World(f"{directory}/node1", job(steps=80), world=2, snapshots=committed, generation=2) as w:
        w.run()
        assert w.ranks[0].reports[0]["step"] == 40


def shared_directory_is_written_once(directory):
    with World(directory, job(steps=40), world=4, nodes=2) as w:
        w.run()
        assert {c.rank for c in w.rendezvous.commits} == {0}
    assert not [n for n in os.listdir(f"{directory}/out") if n.startswith(".")], os.listdir(f"{directory}/out")


def keeps_the_newest_and_says_they_count(directory):
    with World(directory, job(steps=60, keep=2), world=2) as w:
        w.run()
    kept = sorted(os.listdir(f"{directory}/out"))
    assert len(kept) == 2 and kept[-1] == "step-60-g1", kept
    with open(f"{directory}/out/step-60-g1/COMMITTED.json") as f:
        committed = json.load(f)
    assert (committed["job"], committed["generation"], committed["step"]) == (7, 1, 60), committed
    assert sorted(committed["files"]) == sorted([*FILES, "run.json"]), committed


def stale_generation_commits_nothing(directory):
    with World(directory, job(steps=100000, every=50), world=2) as w:
        w.until_step(20)
        w.end_generation()
        codes = w.wait()
        assert codes == [75, 75], codes
        commits = {(c.generation, c.step) for c in w.rendezvous.commits}
    for name in os.listdir(f"{directory}/out"):
        if os.path.exists(f"{directory}/out/{name}/COMMITTED.json"):
            step, generation = name[5:].split("-g")
            assert (int(generation), int(step)) in commits, name


def survivors_wait_for_the_verdict(directory):
    """Survivors do not exit before the coordinator ends the generation, so the rank that died is reported first, as the cause."""
    with World(directory, job(steps=10000000, every=1000000), world=4, nodes=2) as w:
        w.judging = False
        w.until_step(20)
        w.kill(1)
        others = [r for r in w.ranks if r.rank != 1]
        w.until(lambda: all("peer lost: " in r.err for r in others), "all to notice")
        try:
            raise AssertionError(f"exit {others[0].process.wait(timeout=1)} before the verdict")
        except subprocess.TimeoutExpired:
            assert [r.process.poll() for r in others] == [None] * 3
        w.end_generation()
        assert w.wait() == [75, -signal.SIGKILL, 75, 75]
    with World(directory, job(steps=10000000, every=1000000), world=2) as w:
        w.judging = False
        w.until_step(20)
        w.kill(1)
        w.until(lambda: "peer lost: " in w.ranks[0].err, "rank 0 to notice")
        w.kill(0, signal.SIGTERM)
        assert w.wait() == [75, -signal.SIGKILL]


def asked_to_stop(directory):
    with World(directory, job(steps=10000000, every=1000000), world=4, nodes=2) as w:
        w.until_step(20)
        with w.rendezvous.lock:
            w.rendezvous.stop = True
            w.rendezvous.lock.notify_all()
        assert w.wait() == [0, 0, 0, 0]
        last = [c.step for c in w.rendezvous.commits]
        assert len(last) == 1 and last[0] >= 20, last


def sigterm_to_one_stops_all_with_a_snapshot(directory):
    for sync in ("{type: allreduce}", AVERAGE):
        with World(f"{directory}/{sync[7:9]}", job(steps=10000000, every=1000000, sync=sync), world=4, nodes=2) as w:
            w.until_step(20)
            w.kill(2, signal.SIGTERM)
            codes = w.wait()
            assert codes == [75, 75, 143, 75], codes
            assert len(w.rendezvous.commits) == 1, w.rendezvous.commits


def nan_names_step_and_rank(directory):
    text = job(steps=10000, optimizer="{type: sgd, lr: 1.0e+30}")
    with World(directory, text, world=2) as w:
        codes = w.wait()
        said = "".join(r.err for r in w.ranks)
        assert 78 in codes and set(codes) <= {75, 78}, codes
        assert "loss is nan at step " in said or "loss is inf at step " in said, said
        assert "on rank " in said, said


def the_last_step_may_ruin_it_all(directory):
    """The loss of a step is computed before its update. If the last update ruins the parameters, only the evaluation can find
    it."""
    text = job(steps=1, optimizer="{type: sgd, lr: 1.0e+38, weight_decay: 1000}").replace("  snapshot: ", "  # ")
    with World(directory, text, world=2) as w:
        codes = w.wait()
        assert 78 in codes and set(codes) <= {75, 78}, codes  # the other rank may first learn that its peer has ended
        assert any("validation loss is nan after step 1: lower the " in r.err for r in w.ranks), w.ranks[0].err


def damaged_snapshot_is_not_offered(directory):
    committed = {}
    with World(directory, job(steps=60, every=20), world=1, snapshots=committed) as w:
        w.run()
    at = os.path.join(newest(f"{directory}/out"), "model.safetensors")
    with open(at, "r+b") as f:
        f.seek(-100, os.SEEK_END)
        byte = f.read(1)
        f.seek(-100, os.SEEK_END)
        f.write(bytes([byte[0] ^ 1]))
    with World(directory, job(steps=60, every=20), world=1, snapshots=committed, generation=2) as w:
        w.run()
        assert w.ranks[0].reports[0]["step"] in (20, 40), w.ranks[0].reports[0]
        assert "damaged" in w.ranks[0].err and "step-60-g1" in w.ranks[0].err, w.ranks[0].err


def another_model_names_the_tensor(directory):
    committed = {}
    with World(directory, job(steps=20), world=2, snapshots=committed) as w:
        w.run()
    text = job(steps=40).replace("64", "32")
    with World(directory, text, world=2, snapshots=committed, generation=2) as w:
        codes = w.wait()
        assert codes == [78, 78], codes
        for r in w.ranks:
            assert "model.safetensors: tensor 'layers.0.weight': expected shape (32,12), got (64,12)" in r.err


def a_sum_that_overflows_has_a_cause(directory):
    """Each rank's loss is finite, but their sum is not. A rank must report this as the cause."""
    text = """
name: t
device: cpu
train:
  tutorial_lines: true
  model: {type: linear, in: 8, out: 1}
  data: {type: synthetic, samples: 64, in: 8, out: 1}
  optimizer: {type: sgd, lr: LR}
  batch: 4
  steps: 400
"""
    for lr in ("0.9", "0.7", "1.4"):
        with World(directory, text.replace("LR", lr), world=2) as w:
            codes = w.wait()
            assert 78 in codes, (lr, codes, [r.err for r in w.ranks])


def the_best_is_kept(directory):
    """The learning rate grows until it ruins the model, so the best snapshot is not the newest. It is kept, also over a restart."""
    text = """
name: t
device: cpu
train:
  tutorial_lines: true
  model: {type: linear, in: 8, out: 1}
  data: {type: synthetic, samples: 64, in: 8, out: 1}
  optimizer: {type: sgd, lr: 0.9, clip: 0.5}
  schedule: {type: constant, warmup: 200}
  batch: 4
  steps: STEPS
  eval: {every: 10}
  snapshot: {dir: out, every: 50, keep: 1, keep_best: 1}
"""
    committed, losses = {}, {}
    for generation, steps in ((1, 100), (2, 200)):
        with World(directory, text.replace("STEPS", str(steps)), world=2, snapshots=committed, generation=generation) as w:
            w.run()
            losses.update({r["step"]: r["val_loss"] for r in w.ranks[0].reports if "val_loss" in r})
    best = min(losses, key=losses.get)
    assert 0 < best < 100, losses  # the best evaluation was before the restart
    assert sorted(os.listdir(f"{directory}/out")) == sorted([f"step-{best}-g1", "step-200-g2"]), \
        (best, os.listdir(f"{directory}/out"), losses)
    return f"best at step {best}"


sweep("resume", [the_best_is_kept, a_sum_that_overflows_has_a_cause, killed_rank_ends_with_the_same_bits,
                 snapshots_of_earlier_versions_resume,
                 another_optimizer_is_refused, a_complete_run_has_no_choice, averaging_resumes_in_mid_round, resumes_at_another_world_size,
                 diloco_resumes_in_mid_round, diloco_of_one_resumes_in_mid_round,
                 averaging_resumes_at_another_world_size, each_node_keeps_its_own_copy, another_clusters_job_of_the_same_number,
                 shared_directory_is_written_once, keeps_the_newest_and_says_they_count,
                 stale_generation_commits_nothing, survivors_wait_for_the_verdict,
                 asked_to_stop, sigterm_to_one_stops_all_with_a_snapshot,
                 nan_names_step_and_rank, the_last_step_may_ruin_it_all, damaged_snapshot_is_not_offered, another_model_names_the_tensor],
      [muon_resumes_to_the_same_bits, equal_runs_write_equal_files, another_strategy_continues])
