"""A worker of the test torch_store. Its mode is its first argument."""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

mode = sys.argv[1]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
patience = timedelta(seconds=60)


def client():
    return dist.TCPStore(host, port, None, False, patience, wait_for_workers=False)


def every_command(store, name):
    """Each call of the store that this PyTorch has, with keys of their own."""
    mine = "%s/rank%d/" % (name, rank)
    store.set(mine + "set", "value")
    assert store.get(mine + "set") == b"value"
    assert [store.add(mine + "sum", n) for n in (5, -7)] == [5, -2]
    assert store.compare_set(mine + "cas", "", "one") == b"one"
    assert store.compare_set(mine + "cas", "other", "two") == b"one"
    assert store.compare_set(mine + "missing", "was", "two") == b"was"
    assert store.delete_key(mine + "set") and not store.delete_key(mine + "set")
    assert store.num_keys() >= 2
    try:
        store.wait([mine + "never"], timedelta(milliseconds=200))
        raise AssertionError("a key that nobody set has come")
    except RuntimeError as e:
        assert "imeout" in str(e) or "imed out" in str(e), e
    store.set(mine + "never", "late")  # an answer to the wait that was given up would be taken for the next one
    assert store.get(mine + "sum") == b"-2"
    large = "x" * (8 << 20)
    store.set(mine + "large", large)
    assert store.get(mine + "large") == large.encode()
    if hasattr(store, "append"):
        store.append(mine + "append", "a")
        store.append(mine + "append", "b")
        assert store.multi_get([mine + "append", mine + "sum"]) == [b"ab", b"-2"]
        store.multi_set([mine + "m1", mine + "m2"], ["1", "2"])
        assert store.check([mine + "m1", mine + "m2"]) and not store.check([mine + "m1", mine + "m3"])
    if hasattr(store, "queue_push"):
        store.queue_push(mine + "queue", "first")
        assert store.queue_len(mine + "queue") == 1 and store.queue_pop(mine + "queue") == b"first"
        assert store.queue_len(mine + "queue") == 0
    if hasattr(store, "list_keys"):
        assert mine + "append" in store.list_keys() and mine + "set" not in store.list_keys()
    if hasattr(store, "barrier"):
        store.barrier(name + "/barrier", world, patience)


def all_meet(name):
    """The ranks meet by a store of clients only, before there is a process group."""
    store = client()
    store.set("%s/%d" % (name, rank), str(attempt))
    for other in range(world):
        assert int(store.get("%s/%d" % (name, other))) == attempt
    return store


def group_works():
    dist.init_process_group("gloo", timeout=patience)
    total = torch.ones(1) * rank
    dist.all_reduce(total)
    assert total.item() == world * (world - 1) / 2
    dist.barrier()


if mode == "clients":
    every_command(all_meet("meeting"), "before")
    group_works()
    every_command(client(), "after")
elif mode == "manager":  # as torchft's manager: a store beside the group, whose keys have a prefix
    store = dist.PrefixStore("torchft/%d" % attempt, client())
    if rank == 0:
        store.set("manager_addr", host)
    assert store.get("manager_addr") == host.encode()
    group_works()
elif mode == "restart":
    store = client()
    assert store.add("seen/%d" % rank, 1) == 1, "the store of an earlier attempt"
    group_works()
    if attempt < 2 and rank == 1:
        sys.exit(3)
    dist.barrier()
elif mode == "serves":  # rank 0 serves the store itself, whatever the launcher does
    store = dist.TCPStore(host, port, world, rank == 0, patience)
    store.set("rank%d" % rank, "x")
    for other in range(world):
        store.get("rank%d" % other)
    if rank == 0:  # the server: it stays until all others are done
        for other in range(1, world):
            store.get("done%d" % other)
    else:
        store.set("done%d" % rank, "x")
elif mode == "waits":
    store = client()
    print("rank %d waits" % rank, flush=True)
    while rank == 1:  # not signal.pause(), which would miss a signal that comes just before it
        time.sleep(0.1)
    store.wait(["never"], timedelta(seconds=600))
print("rank %d attempt %d store %s port %d ok" % (rank, attempt, os.environ["TORCHELASTIC_USE_AGENT_STORE"], port), flush=True)
