#!/usr/bin/python3
"""Tests snapshots of `shard: optimizer`: each rank writes its moments, they do not cross the network, and a run goes on from them in any
world, whole or divided, also if parts are missing or damaged."""
import glob
import json
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from shard_jobs import ADAMW, CLIPPED, DEEP, MUON, MUON_CLIPPED, ODD, job, run, same_state  # noqa: E402
from world import World, model, newest, state_bits, sweep  # noqa: E402

KINDS = ((ADAMW, ODD), (MUON, DEEP))  # Muon's matrices belong to one rank each, and have one moment


def out_of(directory, nodes, own):
    """The snapshot directories of the nodes."""
    return [f"{directory}/node{i}/out" for i in range(nodes)] if own else [f"{directory}/out"]


def files_of(directory):
    return sorted(os.listdir(newest(directory)))


def parts_in(directory):
    at, = glob.glob(f"{directory}/parts-{os.path.basename(newest(directory))}-j*")
    return sorted(os.listdir(at))


def each_rank_writes_its_moments(directory):
    """Each part lies on the node of its rank, and together they are the moments of a run with whole optimizers. Where nodes have
    directories of their own, snapshots are whole if the job does not ask for parts, and so are those of one rank."""
    shared = ["COMMITTED.json", "model.safetensors"]
    for i, (optimizer, model_text) in enumerate(KINDS):
        at, outs = f"{directory}/{i}", out_of(f"{directory}/{i}/own", 2, True)
        run(at + "/plain", job("none", optimizer, model_text=model_text), 4, 2)
        run(at + "/own", job("optimizer", optimizer, model_text=model_text, kept="parts"), 4, 2, own_dirs=True)
        assert [parts_in(out) for out in outs] == [[f"rank-0000{r}.safetensors" for r in pair] for pair in ((0, 1), (2, 3))]
        assert [files_of(out) for out in outs] == [shared + ["parts.json", "run.json"]] * 2
        assert state_bits(*outs) == state_bits(at + "/plain/out")
        with open(os.path.join(newest(outs[0]), "parts.json")) as f:
            spans = [(p["first"], p["count"]) for p in json.load(f)["parts"]]
        count = sum(len(floats) for _, floats in model(outs[0]).values())
        assert [first for first, _ in spans] == [sum(n for _, n in spans[:r]) for r in range(4)] and sum(spans[-1]) == count, spans
        run(at + "/auto", job("optimizer", optimizer, model_text=model_text), 4, 2)
        assert files_of(at + "/auto/out") == shared + ["parts.json", "run.json"]
        run(at + "/whole", job("optimizer", optimizer, model_text=model_text), 4, 2, own_dirs=True)
        for out in out_of(at + "/whole", 2, True):
            assert files_of(out) == shared + ["optimizer.safetensors", "run.json"]
            same_state(out, at + "/plain/out")
    run(f"{directory}/one", job("optimizer"), 1)
    assert files_of(f"{directory}/one/out") == shared + ["optimizer.safetensors", "run.json"]


def no_moments_cross_the_network(directory):
    """Compares the bytes that ranks send with a snapshot after each best evaluation and without one. Whole copies show that the counters
    would see the moments."""
    said, count = [], 100 * 120 + 120 + 120 * 20 + 20  # with Muon, the first matrix has one moment
    for optimizer, all_moments in ((ADAMW, 8 * count), (MUON, 8 * count - 4 * 100 * 120)):
        each = {}
        for kept in ("parts", "whole"):
            sent, commits = {}, {}
            for best in (True, False):
                text = job("optimizer", optimizer, 60, 10**6, "{type: mlp, sizes: [100, 120, 20], activation: tanh}", kept=kept)
                text = text.replace("every: 1000}", "every: 8}")
                w = run(f"{directory}/{optimizer[7:10]}-{kept}-{best}", text if best else text.replace("keep_best: 1, ", ""), 4, 2, own_dirs=True)
                sent[best], commits[best] = sum(w.last("sync_bytes", r) for r in range(4)), len(w.rendezvous.commits)
            assert commits[True] >= 4, commits
            each[kept] = (sent[True] - sent[False]) / (commits[True] - commits[False])
        assert 0 < each["parts"] < all_moments / 20, (each, all_moments)
        assert each["whole"] > all_moments / 2, (each, all_moments)
        said.append(f"{each['parts']:.0f} instead of {each['whole']:.0f}")
    return f"bytes of all ranks for a snapshot: {', '.join(said)}"


def killed_and_resumed_on_own_disks(directory):
    """Each node has a directory of its own. Nothing is passed on: each rank reads its own part."""
    for i, (optimizer, model_text) in enumerate(((CLIPPED, ODD), (MUON_CLIPPED, DEEP))):
        text = job("optimizer", optimizer, steps=120, every=11, model_text=model_text, kept="parts").replace("every: 1000", "every: 40")
        whole, cut, committed = f"{directory}/{i}/whole", f"{directory}/{i}/cut", {}
        run(whole, text, 4, 2, own_dirs=True)
        with World(cut, text, world=4, nodes=2, snapshots=committed, own_dirs=True) as w:
            w.kill_at_commit(1, 11)
            assert w.wait()[1] == -signal.SIGKILL
        w = run(cut, text, 4, 2, snapshots=committed, generation=2, own_dirs=True)
        assert w.ranks[0].reports[0]["step"] >= 11 and "event=part_passed_on" not in w.ranks[0].err, w.ranks[0].err
        assert state_bits(*out_of(cut, 2, True)) == state_bits(*out_of(whole, 2, True))


def resumed_in_any_world(directory):
    resumed_in_worlds(directory + "/0", KINDS[0], ((1, 1), (2, 2), (3, 1), (4, 2), (8, 2)))
    resumed_in_worlds(directory + "/1", KINDS[1], ((1, 1), (2, 2), (8, 2)))


def resumed_in_some_worlds(directory):
    resumed_in_worlds(directory, KINDS[0], ((2, 2), (4, 2)))


def resumed_in_worlds(at, kind_of_run, worlds):
    """Four ranks on two nodes divide the moments. The run goes on in worlds of other sizes, divided and whole, with the bits of a run
    that goes on from a whole snapshot. A node without parts gets them from the others."""
    optimizer, model_text = kind_of_run
    committed = {"plain": {}, "own": {}, "shared": {}}
    run(at + "/plain", job("none", optimizer, model_text=model_text), 4, 2, snapshots=committed["plain"])
    run(at + "/own", job("optimizer", optimizer, model_text=model_text, kept="parts"), 4, 2, snapshots=committed["own"], own_dirs=True)
    run(at + "/shared", job("optimizer", optimizer, model_text=model_text), 4, 2, snapshots=committed["shared"])

    def go_on(kind, shard, world, nodes):
        copy = f"{at}/{kind}-{shard}-{world}-{nodes}"
        shutil.copytree(f"{at}/{kind}", copy)
        text = job(shard, optimizer, steps=40, model_text=model_text, kept="parts" if shard == "optimizer" else "auto")
        w = run(copy, text, world, nodes, snapshots=dict(committed[kind]), generation=2, own_dirs=kind == "own")
        assert w.ranks[0].reports[0]["step"] == 20, w.ranks[0].reports[0]
        passed = w.ranks[0].err.count("event=part_passed_on")
        return state_bits(*out_of(copy, nodes if shard == "optimizer" else 1, kind == "own")), passed

    for world, nodes in worlds:
        bits, _ = go_on("plain", "none", world, nodes)
        for kind in ("shared", "own"):
            if kind == "own" and nodes == 1:
                continue
            for shard in ("none", "optimizer"):
                found, passed = go_on(kind, shard, world, nodes)
                assert found == bits, (optimizer, kind, shard, world)
                most = 0 if kind == "shared" or (shard, world) == ("optimizer", 4) else 4
                assert passed == most or (passed < most and shard == "optimizer"), (kind, shard, world, passed)
    # Three nodes, of which the third has no snapshots.
    for shard in ("none", "optimizer"):
        bits, _ = go_on("plain", shard, 3, 3)
        found, passed = go_on("own", shard, 3, 3)
        assert passed > 0 and found == bits, (optimizer, shard, passed)


def a_missing_part(directory):
    """The newest snapshot lacks a part, or one is damaged: the run goes back to an older one. If there is none, no rank begins without
    its moments. A part that another node has in its place is passed on."""
    text = job("optimizer", steps=30, every=10, kept="parts").replace("keep: 2", "keep: 9")
    longer = text.replace("steps: 30", "steps: 40")
    committed, at = {}, f"{directory}/at"
    run(at, text, 4, 2, snapshots=committed, own_dirs=True)
    part, = glob.glob(f"{at}/node1/out/parts-step-30-g1-j7/rank-00002*")
    for how in ("gone", "damaged", "moved"):
        copy = f"{directory}/{how}"
        shutil.copytree(at, copy)
        path = part.replace(at, copy)
        if how == "damaged":
            with open(path, "r+b") as f:
                f.seek(-3, os.SEEK_END)
                f.write(b"\x55")
        elif how == "moved":
            shutil.move(path, path.replace("node1", "node0"))
            shutil.move(path.replace("00002", "00003"), path.replace("node1", "node0").replace("00002", "00003"))
        else:
            os.remove(path)
        w = run(copy, longer, 4, 2, snapshots=dict(committed), generation=2, own_dirs=True)
        step = w.ranks[0].reports[0]["step"]
        older = max(step for _, step in committed if step < 30)  # one that comes while another is written is skipped
        assert step == (30 if how == "moved" else older), (how, step)
        assert w.ranks[0].err.count("event=part_passed_on") == 2 * (how == "moved")
        run(f"{directory}/plain", job("none", steps=40), 4, 2)
        assert state_bits(*out_of(copy, 2, True)) == state_bits(f"{directory}/plain/out"), how
    # Only one node's parts are left, and ranks are told to begin there.
    shutil.copytree(f"{at}/node0/out", f"{directory}/half/out")
    with World(f"{directory}/half", longer, world=2, nodes=1, snapshots=dict(committed), generation=2, refuses_incomplete=False) as w:
        codes = w.wait()
    assert all(codes), codes
    assert all("of step 30 is missing: rank 2 wrote it on 'node1'" in r.err for r in w.ranks), [r.err for r in w.ranks]


def an_old_copy_that_is_damaged(directory):
    """Of an old snapshot a node has only looked at the headers. It reads a damaged part there, and gets that part from another node, which
    has a good copy."""
    run(f"{directory}/plain", job("none", steps=40), 4, 2)
    an_old_copy_on_one_node(f"{directory}/1", 1, f"{directory}/plain/out")


def an_old_copy_that_is_damaged_on_the_first_node(directory):
    run(f"{directory}/plain", job("none", steps=40), 4, 2)
    an_old_copy_on_one_node(f"{directory}/0", 0, f"{directory}/plain/out")


def an_old_copy_on_one_node(directory, bad, plain):
    committed, at = {}, f"{directory}/at"
    bad_out, good_out = f"{at}/node{bad}/out", f"{at}/node{1 - bad}/out"
    for i in range(6):
        run(at, job("optimizer", steps=10 * (i + 1), kept="parts").replace("keep: 2", "keep: 9"), 4, 2, snapshots=committed, generation=i + 1, own_dirs=True)
    assert len(committed) == 6, committed
    for i in range(1, 6):
        os.remove(f"{good_out}/parts-step-{10 * (i + 1)}-g{i + 1}-j7/rank-0000{2 - 2 * bad}.safetensors")
    for path in glob.glob(f"{bad_out}/parts-step-10-g1-j7/*"):
        shutil.copy(path, path.replace(bad_out, good_out))
    with open(f"{bad_out}/parts-step-10-g1-j7/rank-0000{2 * bad}.safetensors", "r+b") as f:
        f.seek(-3, os.SEEK_END)
        f.write(b"\x55")
    w = run(at, job("optimizer", steps=40, kept="parts").replace("keep: 2", "keep: 9"), 4, 2, snapshots=committed, generation=7, own_dirs=True)
    assert w.ranks[0].reports[0]["step"] == 10, w.ranks[0].reports[0]
    assert f"rank-0000{2 * bad}.safetensors: not the part that was committed: damaged" in w.ranks[2 * bad].err, w.ranks[2 * bad].err
    assert w.ranks[0].err.count(f"event=part_passed_on part={2 * bad}") == w.ranks[0].err.count("event=part_passed_on") == 1, w.ranks[0].err
    newest_of_all = [f"{directory}/last{i}" for i in range(2)]
    for i, out in enumerate(newest_of_all):
        os.makedirs(out)
        for name in glob.glob(f"{at}/node{i}/out/*step-40-g7*"):
            shutil.copytree(name, os.path.join(out, os.path.basename(name)))
    assert state_bits(*newest_of_all) == state_bits(plain)


sweep("shard snapshots", [each_rank_writes_its_moments, no_moments_cross_the_network, killed_and_resumed_on_own_disks, resumed_in_some_worlds,
                          a_missing_part, an_old_copy_that_is_damaged],
      [resumed_in_any_world, an_old_copy_that_is_damaged_on_the_first_node])
