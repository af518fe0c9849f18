#!/usr/bin/python3
"""Tests snapshots of ranks whose state differs. Each rank writes its part on its own node. Tests how much is sent over the
network, where parts are written, and how a run goes on after ranks were moved, added or lost."""
import glob
import json
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, model, part, raw, sweep, whole_file  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: mlp, sizes: [12, 64, 3], activation: tanh}
  data: {type: synthetic, samples: 1000}
  optimizer: {type: adamw, lr: 3.0e-3}
  global_batch: 60
  steps: STEPS
  seed: 5
  sync: SYNC
  eval: {every: 20}
  snapshot: {dir: out, every: EVERY, keep: 9, keep_best: 1}
  log_every: 1
"""
# Evaluations are at step 20, 40, ...; step 20 lies in the middle of a round of 8 steps.
STATE = 3 * 4 * (12 * 64 + 64 + 64 * 3 + 3)  # bytes of a rank's parameters and moments


AVERAGE = "{type: average, every: 8}"
DILOCO = "{type: diloco, every: 8, outer_lr: 0.7, outer_momentum: 0.9, wire: int4}"  # the outer momentum is shared; each rank has its own error feedback


def job(steps, every=16, keep_best=True, sync=AVERAGE):
    text = JOB.replace("STEPS", str(steps)).replace("EVERY", str(every)).replace("SYNC", sync)
    return text if keep_best else text.replace(", keep_best: 1", "")


def parts_of(directory, step):
    """Returns the names of the parts of generation 1's snapshot."""
    return sorted(os.path.basename(p) for p in glob.glob(f"{directory}/parts-step-{step}-g1-j7/*"))


def names(*ranks):
    return [f"rank-{r:05d}.safetensors" for r in ranks]


def first_half(directory, committed, **more):
    """Runs two ranks on two nodes, each with its own directory, up to step 20."""
    with World(directory, job(20), world=2, nodes=2, snapshots=committed, own_dirs=True, **more) as w:
        w.run()


def said(w, what):
    return [line for r in w.ranks for line in r.err.splitlines() if what in line]


def no_state_crosses_the_network(directory):
    """Compares the bytes that two runs send: one writes a snapshot whenever an evaluation is the best so far, the other does
    not."""
    sent, commits = {}, {}
    for best in (True, False):
        text = job(160, 1000000, best).replace("every: 20", "every: 8")
        with World(f"{directory}/{best}", text, world=2, nodes=2) as w:
            w.run()
            sent[best] = [w.last("sync_bytes", rank) for rank in range(2)]
            commits[best] = len(w.rendezvous.commits)
    assert commits[True] >= 5 and commits[False] == 1, commits
    each = max(a - b for a, b in zip(sent[True], sent[False])) / (commits[True] - 1)
    assert 0 < each < STATE / 20, (sent, STATE)
    return f"{each:.0f} bytes a rank and snapshot, a state has {STATE}"


def every_rank_writes_its_part(directory):
    with World(f"{directory}/shared", job(16), world=4, nodes=2) as w:
        w.run()
        assert {c.rank for c in w.rendezvous.commits} == {0}
    assert parts_of(f"{directory}/shared/out", 16) == names(0, 1, 2, 3)
    assert sorted(os.listdir(f"{directory}/shared/out/step-16-g1")) == \
        ["COMMITTED.json", "model.safetensors", "parts.json", "run.json"]
    with World(f"{directory}/own", job(16), world=4, nodes=2, own_dirs=True) as w:
        w.run()
    assert parts_of(f"{directory}/own/node0/out", 16) == names(0, 1)
    assert parts_of(f"{directory}/own/node1/out", 16) == names(2, 3)
    for node in ("node0", "node1"):
        assert raw(f"{directory}/own/{node}/out") == raw(f"{directory}/shared/out")


def goes_on_where_parts_are(directory):
    """A run resumes in mid-round with the same bits, also if ranks were moved to other nodes, so that parts must be sent."""
    go_on_where_parts_are(f"{directory}/average", AVERAGE, 2)
    go_on_where_parts_are(f"{directory}/diloco", DILOCO, 2)
    go_on_where_parts_are(f"{directory}/slices", DILOCO, 3)  # with three or more ranks, each rank also has the error feedback of its slice


def go_on_where_parts_are(directory, sync, world):
    with World(f"{directory}/whole", job(60, sync=sync), world=world, nodes=world, own_dirs=True) as w:
        w.run()
    for swapped in (False, True):
        at, committed = f"{directory}/{swapped}", {}
        with World(at, job(60, sync=sync), world=world, nodes=world, snapshots=committed, own_dirs=True) as w:
            w.kill_at_commit(1, 20)
            w.wait()
        if swapped:
            os.rename(f"{at}/node0", f"{at}/node")
            os.rename(f"{at}/node1", f"{at}/node0")
            os.rename(f"{at}/node", f"{at}/node1")
        with World(at, job(60, sync=sync), world=world, nodes=world, snapshots=committed, generation=2, own_dirs=True) as w:
            w.run()
            step = w.ranks[0].reports[0]["step"]
            assert step % 8 == 4, step
            assert len(said(w, "event=part_moved")) == 2 * swapped, [r.err for r in w.ranks]
            assert not said(w, "event=ranks_changed")
        for rank in range(world):
            assert raw(f"{at}/node{rank}/out") == raw(f"{directory}/whole/node0/out"), rank
            assert part(f"{at}/node{rank}/out", rank) == part(f"{directory}/whole/node{rank}/out", rank), rank


def goes_on_with_other_numbers_of_ranks(directory):
    for old, world, sync in ((2, 1, AVERAGE), (2, 2, AVERAGE), (2, 3, AVERAGE), (2, 1, DILOCO), (2, 3, DILOCO),
                             (3, 2, DILOCO), (3, 4, DILOCO)):
        at, committed = f"{directory}/{old}-{world}-{sync[7:9]}", {}
        with World(at, job(20, sync=sync), world=old, snapshots=committed) as w:
            w.run()
        with World(at, job(40, sync=sync), world=world, snapshots=committed, generation=2) as w:
            w.run()
            assert w.ranks[0].reports[0]["step"] == 20, w.ranks[0].reports[0]
            changed = said(w, "event=ranks_changed")
            assert len(changed) == (world != old), [r.err for r in w.ranks]
            assert world >= old or "dropped=1" in changed[0], changed
            assert w.last("step") == 40


def goes_on_under_all_reduce(directory):
    """A run with averaging can be resumed with all-reduce, also by a `warm` that is longer than the run so far. All ranks then take the
    moments of the same part. A round that is open is dropped."""
    for name, sync, first in (("average", AVERAGE, 20), ("diloco", DILOCO, 20), ("within", DILOCO, 60)):
        at, committed, models = f"{directory}/{name}", {}, []
        with World(f"{at}/first", job(first, sync=sync), world=2, snapshots=committed) as w:
            if first == 60:
                w.kill_at_commit(1, 20)
            w.wait()
        for strategy in ("{type: allreduce}", DILOCO.replace("}", ", warm: 60}"), DILOCO.replace("}", ", warm: 41}")):
            where = f"{at}/{len(models)}"
            shutil.copytree(f"{at}/first", where)
            with World(where, job(60, sync=strategy), world=2, snapshots=dict(committed), generation=2) as w:
                w.run()
                step = w.ranks[0].reports[0]["step"]
                assert step == 20 if first == 20 else step % 8 == 4, step
            models.append(model(f"{where}/out"))
        assert models[1] == models[0], name
        assert models[2] != models[0], name


def fragments_keep_their_order_in_rounds_of_another_length(directory):
    """In rounds of 16 steps, the second of two fragments is due after step 24. It is still due in a run that resumes with rounds of 48
    steps, in which step 28 belongs to the first fragment."""
    fragments = "{type: diloco, every: 16, fragments: 2}"
    committed = {}
    with World(directory, job(28, sync=fragments), world=2, snapshots=committed) as w:
        w.run()
    assert turn_of(directory) == "2 0", turn_of(directory)
    with World(directory, job(52, sync=fragments.replace("16", "48")), world=2, snapshots=committed, generation=2) as w:
        w.run()
    assert turn_of(directory) == "1 0", turn_of(directory)  # it was sent at step 52


def turn_of(directory):
    data = raw(f"{directory}/out")
    return json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]["ddp.turn"]


def a_missing_part_is_named(directory):
    """If a node of the new generation has lost its part, an error names the part."""
    committed = {}
    first_half(directory, committed)
    shutil.rmtree(f"{directory}/node1")
    with World(directory, job(40), world=2, nodes=2, snapshots=committed, generation=2, own_dirs=True) as w:
        codes = w.wait()
        assert codes == [1, 1], (codes, [r.err for r in w.ranks])  # not 78, because the job may restart from an older snapshot
        assert all("rank-00001.safetensors of step 20 is missing: rank 1 wrote it on 'node1'" in r.err for r in w.ranks), w.ranks[0].err


def a_lost_node_is_reported(directory):
    """The node that wrote a part is not in the new generation. The rank in its place goes on with the shared model and the
    moments of the other part."""
    committed = {}
    first_half(directory, committed)
    shutil.rmtree(f"{directory}/node1")
    with World(directory, job(40), world=2, nodes=2, snapshots=committed, generation=2, own_dirs=True,
               node_names=["node0", "node7"]) as w:
        w.run()
        changed = said(w, "event=ranks_changed")
        assert len(changed) == 1 and "lost=1" in changed[0], changed
        assert w.last("step") == 40


def a_damaged_part_is_not_taken(directory):
    """With a shared directory, the run then resumes from the snapshot before the damaged one."""
    committed = {}
    with World(directory, job(20), world=2, snapshots=committed) as w:
        w.run()
    at, = glob.glob(f"{directory}/out/parts-step-20-g1-j7/rank-00001.safetensors")
    assert whole_file(at)
    with open(at, "r+b") as f:
        f.seek(-3, os.SEEK_END)
        f.write(b"\x55")
    with World(directory, job(40), world=2, snapshots=committed, generation=2) as w:
        w.run()
        assert w.ranks[0].reports[0]["step"] == 16, w.ranks[0].reports[0]
        assert "rank-00001.safetensors: not the part that was committed: damaged" in w.ranks[0].err, w.ranks[0].err


def a_good_copy_is_taken_for_a_damaged_one(directory):
    """Both nodes have all parts. Rank 1's own copy is damaged, and node 0 has a good one."""
    committed = {}
    first_half(directory, committed)
    at = [f"{directory}/node{i}/out/parts-step-20-g1-j7" for i in range(2)]
    shutil.copy(f"{at[0]}/rank-00000.safetensors", at[1])
    shutil.copy(f"{at[1]}/rank-00001.safetensors", at[0])
    good = whole_file(f"{at[0]}/rank-00001.safetensors")
    with open(f"{at[1]}/rank-00001.safetensors", "wb") as f:
        f.write(good[:-3] + b"\x55\x55\x55")
    with World(directory, job(40), world=2, nodes=2, snapshots=committed, generation=2, own_dirs=True) as w:
        w.run()
        assert w.ranks[0].reports[0]["step"] == 20, w.ranks[0].reports[0]
        moved = said(w, "event=part_moved")
        assert len(moved) == 1 and "part=1 from_rank=0 to_rank=1" in moved[0], moved


def start_from(rendezvous, step):
    """Makes the rank with the lowest number that offers this step the source."""
    def source():
        return next((rank, offer) for rank in sorted(rendezvous.joined) for offer in rendezvous.joined[rank].offers
                    if offer.step == step)
    rendezvous.source = source


def older_snapshots_are_offered_unread(directory):
    """A node offers all its snapshots whose parts lie on two nodes, and reads the four newest. So a damaged file of an older one is
    found by the run that is to load it. The next run does not offer it there."""
    committed = {}
    text = job(6400, every=320, keep_best=False)  # a snapshot is left out while another one is being written
    with World(directory, text, world=2, nodes=2, snapshots=committed, own_dirs=True) as w:
        w.run()
    steps = sorted((step for _, step in committed), reverse=True)[:9]  # keep: 9
    old = steps[5]
    node0, node1 = (f"{directory}/{node}/out/step-{old}-g1" for node in ("node0", "node1"))
    good = whole_file(f"{node0}/model.safetensors")
    with open(f"{node0}/model.safetensors", "wb") as f:
        f.write(good[:-1] + bytes([good[-1] ^ 1]))
    text = text.replace("steps: 6400", f"steps: {old + 320}")
    w = World(directory, text, world=2, nodes=2, snapshots=committed, generation=2, own_dirs=True)
    start_from(w.rendezvous, old)
    with w:
        assert w.wait() == [1, 1], [r.err for r in w.ranks]
        assert all([o.step for o in w.rendezvous.joined[rank].offers] == steps for rank in range(2)), w.rendezvous.joined
        assert all(f"step-{old}-g1: the files are not the ones that were committed: damaged" in r.err for r in w.ranks), w.ranks[0].err
    assert os.path.exists(f"{node0}/LOAD_FAILED") and os.path.exists(f"{node1}/LOAD_FAILED")
    w = World(directory, text, world=2, nodes=2, snapshots=committed, generation=3, own_dirs=True)
    start_from(w.rendezvous, old)
    with w:
        w.run()
        assert [o.step for o in w.rendezvous.joined[0].offers] == [s for s in steps if s != old], w.rendezvous.joined[0]
        assert [o.step for o in w.rendezvous.joined[1].offers] == steps, w.rendezvous.joined[1]
        assert w.ranks[0].reports[0]["step"] == old, w.ranks[0].reports[0]
    assert not os.path.exists(f"{node1}/LOAD_FAILED")


def set_step(path, step):
    """Writes the step into the metadata of the file."""
    with open(path, "rb") as f:
        data = f.read()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"]["ddp.step"] = str(step)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data[end:])


def at_most_64_snapshots_are_offered(directory):
    """The coordinator refuses a Join with more. Failed snapshots may be many, and must not push out the committed one."""
    committed = {}
    with World(directory, job(20), world=1, snapshots=committed) as w:
        w.run()
    del committed[(1, 20)]
    os.unlink(f"{directory}/out/step-20-g1/COMMITTED.json")
    for copy in range(21, 101):
        shutil.copytree(f"{directory}/out/step-20-g1", f"{directory}/out/step-{copy}-g1")
        set_step(f"{directory}/out/step-{copy}-g1/model.safetensors", copy)
    with World(directory, job(40), world=1, snapshots=committed, generation=2) as w:
        w.run()
        assert len(w.rendezvous.joined[0].offers) == 64
        assert w.ranks[0].reports[0]["step"] == 16, w.ranks[0].reports[0]


def a_lost_answer_costs_no_snapshot(directory):
    """Rank 1 is killed before it learns that its snapshot was committed. The next generation must keep the snapshot and mark it
    as committed."""
    committed = {}
    with World(directory, job(60), world=2, nodes=2, snapshots=committed, own_dirs=True) as w:
        w.kill_at_commit(1, 20)
        w.wait()
    step = max(step for _, step in committed)
    kept = f"{directory}/node1/out/step-{step}-g1"
    assert not os.path.exists(kept + "/COMMITTED.json")
    with World(directory, job(60), world=2, nodes=2, snapshots=committed, generation=2, own_dirs=True) as w:
        w.run()
        assert os.path.exists(kept + "/COMMITTED.json"), os.listdir(f"{directory}/node1/out")
        assert len(said(w, "event=snapshot_marked")) >= 1


def a_part_that_cannot_be_written_costs_one_snapshot(directory):
    """Rank 1 cannot write its part of step 16: rank 0 learns of it and removes its files, and the next snapshot works."""
    os.makedirs(f"{directory}/node1/out")
    with open(f"{directory}/node1/out/parts-step-16-g1-j7", "w"):
        pass
    with World(directory, job(40, keep_best=False), world=2, nodes=2, own_dirs=True) as w:
        w.run()
        steps = [c.step for c in w.rendezvous.commits]
        assert 16 not in steps and steps[-1] == 40, steps
        assert not glob.glob(f"{directory}/node0/out/*step-16-g1*"), os.listdir(f"{directory}/node0/out")
        assert all("event=snapshot_failed" in r.err for r in w.ranks), [r.err for r in w.ranks]


sweep("parts", [no_state_crosses_the_network, every_rank_writes_its_part, goes_on_where_parts_are,
                goes_on_with_other_numbers_of_ranks, goes_on_under_all_reduce,
                fragments_keep_their_order_in_rounds_of_another_length, a_missing_part_is_named, a_lost_node_is_reported,
                a_damaged_part_is_not_taken, a_good_copy_is_taken_for_a_damaged_one,
                older_snapshots_are_offered_unread, at_most_64_snapshots_are_offered, a_lost_answer_costs_no_snapshot, a_part_that_cannot_be_written_costs_one_snapshot])
