#!/usr/bin/python3
"""Tests stops within a round of many steps. Ranks at different steps stop where they are, and the run that resumes ends with the bits of
one that was not stopped."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, part, raw, sweep  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {{type: mlp, sizes: [12, 256, 256, 3], activation: tanh}}
  data: {{type: synthetic, samples: 1000}}
  optimizer: {{type: adamw, lr: 3.0e-3}}
  schedule: {{type: cosine, warmup: 5}}
  global_batch: 60
  steps: {steps}
  seed: 5
  sync: {sync}
  eval: {{every: {evaluate}}}
  snapshot: {{dir: out, every: {every}, keep: 9}}
  resume: {resume}
  log_every: 1
"""
ROUND = 300
AVERAGE = "{type: average, every: 300}"
DILOCO = "{type: diloco, every: 300, wire: int4}"
FRAGMENTS = "{type: diloco, every: 300, fragments: 2}"
WARM = "{type: diloco, every: 300, warm: 100}"


def job(steps, sync=AVERAGE, every=1000000, resume="auto", evaluate=1000000):
    return JOB.format(steps=steps, sync=sync, every=every, resume=resume, evaluate=evaluate)


def ask_to_stop(w):
    with w.rendezvous.lock:
        w.rendezvous.stop = True
        w.rendezvous.lock.notify_all()


class Apart(World):
    """Rank 1 holds in step `slow`, which therefore takes so long that the rest of the round would take more than a second.
    So does rank 0 if `both` is true."""

    def __init__(self, directory, text, slow, both=False, **options):
        self.slow, self.gate, self.held = slow, f"{directory}.gate", range(2) if both else [1]
        os.makedirs(directory, exist_ok=True)
        open(self.gate, "w").close()
        super().__init__(directory, text, env={r: {"DDP_TEST_HOLD_STEP": f"{slow}:{self.gate}"} for r in self.held}, **options)

    def stop(self, fast=None):
        """When rank 0 has made step `fast`, all are asked to stop. Held ranks end their step when all have heard of it."""
        w = self
        w.until(lambda: all("event=held_for_test" in w.ranks[r].err for r in w.held), f"ranks to hold in step {w.slow}")
        if fast:
            w.until_step(fast, rank=0)
        ask_to_stop(w)
        w.until(lambda: all("event=stop_asked" in r.err for r in w.ranks), "all ranks to hear of the stop")
        os.unlink(self.gate)
        assert w.wait() == [0] * w.world, [r.err for r in w.ranks]


def first_step(w, rank):
    return w.ranks[rank].reports[0]["step"]


def undisturbed(directory, text, world):
    with World(f"{directory}/whole", text, world=world, nodes=world) as w:
        w.run()
    return w


def same_as_undisturbed(directory, world):
    whole, cut = f"{directory}/whole/out", f"{directory}/cut/out"
    assert raw(cut) == raw(whole), "another model"
    for rank in range(world):
        assert part(cut, rank) == part(whole, rank), f"another part of rank {rank}"


def a_stop_does_not_wait_for_the_round(directory):
    for sync in ("{type: average, every: 1000000}", "{type: diloco, every: 1000000, wire: int8}"):
        for number in (None, signal.SIGTERM):
            at = f"{directory}/{sync[7:9]}{number}"
            with World(at, job(10000000, sync), world=2, nodes=2) as w:
                w.until_step(20)
                if number:
                    w.kill(0, number)
                    w.kill(1, number)
                else:
                    ask_to_stop(w)
                got = w.wait()
                assert got == ([143, 143] if number else [0, 0]), (got, [r.err[-2000:] for r in w.ranks])
                last = [c.step for c in w.rendezvous.commits]
                assert len(last) == 1 and 20 <= last[0] < 100000, last


def ranks_stop_where_they_are(directory):
    """The fast rank waits at the end of the round. The second stop comes while it waits there again."""
    for name, sync, world, began, at in (("average", AVERAGE, 2, 0, ROUND), ("diloco", DILOCO, 3, 0, ROUND),
                                         ("first", FRAGMENTS, 2, 0, ROUND // 2), ("second", FRAGMENTS, 2, ROUND // 2, ROUND),
                                         ("warm", WARM, 2, 100, 100 + ROUND)):
        where = f"{directory}/{name}"
        text, committed = job(at + 60, sync), {}
        undisturbed(where, text, world)
        with Apart(f"{where}/cut", text, began + 10, world=world, nodes=world, snapshots=committed) as w:
            w.stop(at - 1)
            assert [c.step for c in w.rendezvous.commits] == [at], w.rendezvous.commits
        with Apart(f"{where}/cut", text, began + 40, world=world, nodes=world, snapshots=committed, generation=2) as w:
            w.stop()
            assert first_step(w, 0) == at and first_step(w, 1) == began + 10, [first_step(w, r) for r in range(world)]
            assert [c.step for c in w.rendezvous.commits] == [at], w.rendezvous.commits
        with World(f"{where}/cut", text, world=world, nodes=world, snapshots=committed, generation=3) as w:
            w.run()
            assert first_step(w, 0) == at and first_step(w, 1) == began + 40, [first_step(w, r) for r in range(world)]
        same_as_undisturbed(where, world)


def a_round_reports_the_wait_for_slower_ranks(directory):
    """Rank 1 is held in the last step of a round, or of the run. Rank 0 waits for it before the exchange."""
    for at, steps in ((10, 20), (15, 15)):
        with Apart(f"{directory}/{at}", job(steps, AVERAGE.replace("300", "10")), at, world=2, nodes=2) as w:
            w.until(lambda: "event=held_for_test" in w.ranks[1].err, "rank 1 to hold")
            w.until_step(at - 1, rank=0)
            time.sleep(3)  # rank 0 needs much less to come to the exchange
            os.unlink(w.gate)
            w.run()
            waited = [values_at(w, "round_wait_ms", rank) for rank in range(2)]
        assert waited[0][at] > 300 and waited[1][at] < waited[0][at], waited


def values_at(w, name, rank=0):
    return {r["step"]: r[name] for r in w.ranks[rank].reports if name in r}


def an_evaluation_is_made_when_all_have_come_to_it(directory):
    """The fast rank waits for an evaluation. It and a snapshot that waits for the end of the round are made after the resume."""
    for evaluate, at in ((100, 100), ('"6 epochs"', 102)):
        where = f"{directory}/{at}"
        text, committed = job(200, AVERAGE.replace("300", "150"), every=50, evaluate=evaluate), {}
        whole = undisturbed(where, text, 2)
        with Apart(f"{where}/cut", text, 10, world=2, nodes=2, snapshots=committed) as w:
            w.stop(at - 1)
            assert [c.step for c in w.rendezvous.commits] == [at], w.rendezvous.commits
            assert not values_at(w, "val_loss")
        with World(f"{where}/cut", text, world=2, nodes=2, snapshots=committed, generation=2) as w:
            w.run()
            assert first_step(w, 0) == at and first_step(w, 1) == 10
            assert values_at(w, "val_loss") == values_at(whole, "val_loss"), (values_at(w, "val_loss"), values_at(whole, "val_loss"))
            assert 150 in [c.step for c in w.rendezvous.commits], w.rendezvous.commits
        same_as_undisturbed(where, 2)


def an_evaluation_is_made_after_all_have_stopped_at_its_step(directory):
    """The evaluation of the step at which all were stopped is made after the resume, but no other one within that epoch."""
    for evaluate, at, first, later in ((100, 100, [], [100, 200]), ('"6 epochs"', 110, [102], [200])):
        where = f"{directory}/{at}"
        text, committed = job(200, evaluate=evaluate), {}
        with Apart(where, text, at, both=True, world=2, nodes=2, snapshots=committed) as w:
            w.stop()
            assert [c.step for c in w.rendezvous.commits] == [at] and sorted(values_at(w, "val_loss")) == first, values_at(w, "val_loss")
        with World(where, text, world=2, nodes=2, snapshots=committed, generation=2) as w:
            w.run()
            assert first_step(w, 0) == first_step(w, 1) == at, [first_step(w, r) for r in (0, 1)]
            assert sorted(values_at(w, "val_loss")) == later, values_at(w, "val_loss")


def new_evaluations_wait_for_the_slowest_rank(directory):
    """The rank that is behind comes by steps at which an evaluation is due now. The other one has left them behind."""
    committed = {}
    with Apart(directory, job(400, resume="continue"), 10, world=2, nodes=2, snapshots=committed) as w:
        w.stop(ROUND - 1)
    with World(directory, job(400, resume="continue", evaluate=100), world=2, nodes=2, snapshots=committed, generation=2) as w:
        w.run()
        assert first_step(w, 0) == ROUND and first_step(w, 1) == 10
        assert set(values_at(w, "val_loss")) <= {ROUND, 400} and 400 in values_at(w, "val_loss"), values_at(w, "val_loss")


def average_does_not_end_the_round_of_a_fragment(directory):
    committed = {}
    with Apart(directory, job(ROUND + 60, FRAGMENTS, resume="continue"), ROUND // 2 + 10, world=2, nodes=2, snapshots=committed) as w:
        w.stop(ROUND - 1)
    with World(directory, job(ROUND + 60, "{type: average, every: 100}", resume="continue"), world=2, nodes=2, snapshots=committed,
               generation=2) as w:
        w.run()
        assert first_step(w, 0) == first_step(w, 1) == ROUND, [first_step(w, r) for r in (0, 1)]


def a_rank_waits_at_the_end_of_the_run(directory):
    text, committed = job(120), {}
    undisturbed(directory, text, 2)
    with Apart(f"{directory}/cut", text, 10, world=2, nodes=2, snapshots=committed) as w:
        w.stop(119)
    with World(f"{directory}/cut", text, world=2, nodes=2, snapshots=committed, generation=2) as w:
        w.run()
        assert first_step(w, 0) == 120 and first_step(w, 1) == 10
    same_as_undisturbed(directory, 2)


def others_go_on_at_the_newest_step(directory):
    """Other numbers of ranks, another strategy, or other samples in a step. With three ranks, each of the two parts keeps its step."""
    committed = {}
    with Apart(directory, job(400, resume="continue"), 10, world=2, nodes=2, snapshots=committed) as w:
        w.stop(ROUND - 1)
    generation = 1
    for world, text in ((3, job(400, resume="continue")), (1, job(400, resume="continue")),
                        (2, job(400, "{type: allreduce}", resume="continue")),
                        (2, job(400, "{type: diloco, every: 300, warm: 350}", resume="continue")),
                        (2, job(400, '{type: average, every: 1s}', resume="continue")),
                        (2, job(400, "{type: auto}", resume="continue")),
                        (2, job(400, resume="continue").replace("global_batch: 60", "global_batch: 40"))):
        generation += 1
        at = f"{directory}/{generation}"
        os.makedirs(at)
        os.system(f"cp -r {directory}/out {at}/out")
        with World(at, text, world=world, nodes=world, snapshots=dict(committed), generation=generation) as w:
            w.run()
            steps = [first_step(w, r) for r in range(world)]
            assert steps == ([ROUND, 10, ROUND] if world == 3 else [ROUND] * world), (text, steps)


sweep("stops within a round", [a_stop_does_not_wait_for_the_round, ranks_stop_where_they_are,
                               an_evaluation_is_made_when_all_have_come_to_it,
                               an_evaluation_is_made_after_all_have_stopped_at_its_step, new_evaluations_wait_for_the_slowest_rank,
                               average_does_not_end_the_round_of_a_fragment, a_rank_waits_at_the_end_of_the_run,
                               others_go_on_at_the_newest_step, a_round_reports_the_wait_for_slower_ranks])
