#!/usr/bin/python3
"""Tests that no signal handler runs on a thread that computes (trainer/signals.c says why), and that signals end a worker."""
import glob
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import World, sweep  # noqa: E402

JOB = """
name: t
device: cpu
train:
  model: {type: mlp, sizes: [12, 256, 256, 3], activation: tanh}
  data: {type: synthetic, samples: 1000}
  optimizer: {type: adamw, lr: 3.0e-3}
  global_batch: 60
  steps: 10000000
  seed: 5
  snapshot: {dir: out, every: 50, keep: 2}
  log_every: 1
"""
INTERNAL = {32, 33}  # glibc's own: for pthread_cancel and setuid, which the trainer does not call


def masks(status):
    with open(status) as f:
        lines = dict(line.split(":\t", 1) for line in f.read().splitlines() if line.startswith("Sig"))
    return {name: {n for n in range(1, 65) if int(lines[name], 16) >> (n - 1) & 1} for name in ("SigBlk", "SigCgt")}


def threads_of(pid):
    return {task: masks(task) for task in glob.glob(f"/proc/{pid}/task/*/status")}


def no_thread_that_computes_runs_a_handler(directory):
    with World(directory, JOB, world=2, nodes=2) as w:
        w.until(lambda: w.rendezvous.commits, "a snapshot")  # so that the thread that writes it runs, too
        for rank in w.ranks:
            threads = threads_of(rank.process.pid)
            assert len(threads) > 4, threads
            waiting = [task for task, m in threads.items() if signal.SIGTERM not in m["SigBlk"]]
            assert len(waiting) == 1 and f"/task/{rank.process.pid}/" not in waiting[0], threads
            for task, m in threads.items():
                assert not m["SigCgt"] - m["SigBlk"] - INTERNAL, (task, m)
        w.kill(0, signal.SIGTERM)
        w.kill(1, signal.SIGTERM)
        got = w.wait()
        assert got == [143, 143], (got, [r.err[-2000:] for r in w.ranks])


def repeated_signals_stop_as_one_does(directory):
    """A batch system repeats SIGTERM, so that signals also come in the last products and while the snapshot is written."""
    with World(directory, JOB, world=2, nodes=2) as w:
        w.until_step(20)
        while any(r.process.poll() is None for r in w.ranks):
            for r in w.ranks:
                r.process.send_signal(signal.SIGTERM)
                r.process.send_signal(signal.SIGUSR1)
        got = w.wait()
        assert got == [143, 143], (got, [r.err[-2000:] for r in w.ranks])
        assert w.rendezvous.commits, "no snapshot"


sweep("signals", [no_thread_that_computes_runs_a_handler, repeated_signals_stop_as_one_does])
