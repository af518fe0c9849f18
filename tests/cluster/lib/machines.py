"""Nodes that are lost although all agents share this machine."""
import contextlib
import os
from signal import SIGKILL


def kill_machine(c, node):
    """The node's agent, its supervisors and their workers end at one time, as when its power goes: the agent first, so that
    it sees nothing of the others' end."""
    c.agents[node].kill()
    for pid in [pid for pid in c.processes() if on_node(pid, node)]:
        with contextlib.suppress(ProcessLookupError):  # its parent's end was its own
            os.kill(pid, SIGKILL)


def on_node(pid, node):
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            if b"DDP_NODE=%s" % node.encode() in f.read().split(b"\0"):
                return True
        with open("/proc/%d/cmdline" % pid, "rb") as f:
            words = f.read().split(b"\0")
        return b"ddp-" in words[0] and node.encode() in words
    except OSError:
        return False
