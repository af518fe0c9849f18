"""Checks the lines that examples/pytorch/train.py prints, whichever launcher started it."""
import os
import re

from lib.cluster import SOURCE, processes_with, wait_for

TRAIN = os.path.join(SOURCE, "examples", "pytorch", "train.py")
SPAWN = os.path.join(SOURCE, "examples", "pytorch", "spawn.py")
SAMPLES, BATCH = 2048, 32


def parse_output(text):
    """Returns ([epochs of each start of the program, by rank], saved epochs, epochs resumed at), in the order of the lines."""
    ran, saved, resumed = {}, [], []
    for line in text.splitlines():
        epoch = re.fullmatch(r"\[GPU(\d+)\] Epoch (\d+) \| Batchsize: (\d+) \| Steps: (\d+)", line)
        save = re.fullmatch(r"Epoch (\d+) \| Training snapshot saved at snapshot.pt", line)
        resume = re.fullmatch(r"Resuming training from snapshot at Epoch (\d+)", line)
        assert epoch or save or resume, "a line that no rank wrote: %r\n%s" % (line, text[-3000:])
        if epoch:
            rank, number, batch, steps = map(int, epoch.groups())
            ran.setdefault(rank, []).append((number, batch, steps))
        elif save:
            saved.append(int(save.group(1)))
        else:
            resumed.append(int(resume.group(1)))
    return ran, saved, resumed


def separate_lines(text):
    """Separates lines that ranks wrote into each other, which torchrun allows and ddpctl run does not."""
    return re.sub(r"\n+", "\n", re.sub(r"(?=\[GPU|Epoch \d+ \| Training|Resuming)", "\n", text)).lstrip("\n")


def undisturbed(text, world, epochs, every):
    ran, saved, resumed = parse_output(text)
    steps = -(-SAMPLES // world // BATCH)
    assert ran == {rank: [(epoch, BATCH, steps) for epoch in range(epochs)] for rank in range(world)}, text
    assert saved == list(range(0, epochs, every)) and not resumed, text


def killed_once(text, world, epochs, every):
    """Checks that every rank did every epoch, and continued after the last snapshot. Returns that epoch."""
    ran, saved, resumed = parse_output(text)
    assert len(resumed) == world and len(set(resumed)) == 1, text[-3000:]
    start, steps = resumed[0], -(-SAMPLES // world // BATCH)
    # The last snapshot may be complete although its line is missing: the process was stopped between the two.
    last = max(epoch for epoch in saved if epoch < start)
    assert start - 1 in (last, last + every) and (start - 1) % every == 0, text[-3000:]
    assert sorted(set(saved) | {start - 1}) == list(range(0, epochs, every)), text[-3000:]
    assert set(ran) == set(range(world)), text[-3000:]
    for rank, seen in ran.items():
        assert {(batch, s) for _, batch, s in seen} == {(BATCH, steps)}, seen
        numbers = [number for number, _, _ in seen]
        reached = len(numbers) - (epochs - start)  # epochs that the first start began
        assert start - 1 <= reached < epochs, (rank, numbers)
        assert numbers == list(range(reached)) + list(range(start, epochs)), (rank, numbers)
    return start


def rank_pid(c, rank):
    """Returns the process of a rank that belongs to this test and is not one of ddp's own programs."""
    mine = processes_with("DDP_TEST_ID=" + c.id)
    ranks = processes_with("RANK=%d" % rank)
    found = [pid for pid in mine if pid in ranks and "train.py" in mine[pid]]
    assert len(found) == 1, (rank, mine)
    return found[0]


def wait_snapshot(text, epoch=2, timeout=60):
    """Waits until the lines of text() say that the epoch's snapshot exists."""
    wait_for(lambda: "Epoch %d | Training snapshot saved" % epoch in text(), lambda: "a snapshot:\n" + text(), timeout)
