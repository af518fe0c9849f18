"""Ends a node as if its machine had died, although all agents share this machine."""
import contextlib
import os
from signal import SIGKILL


def kill_machine(c, node):
    """Kills the node's agent, its supervisors and their workers at once, as when the power fails. The agent dies first, so that
    it does not see the others end."""
    c.agents[node].kill()
    for pid in [pid for pid in c.processes() if on_node(pid, node)]:
        with contextlib.suppress(ProcessLookupError):  # it ended with its parent
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
