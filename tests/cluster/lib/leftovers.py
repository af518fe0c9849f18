"""What a cluster leaves behind after faults."""
import os

from lib.cluster import Timeout, wait_for


def coordinator_sockets(c):
    """Returns the coordinator's sockets."""
    count = 0
    for name in os.listdir("/proc/%d/fd" % c.coordinator.pid):
        try:
            count += os.readlink("/proc/%d/fd/%s" % (c.coordinator.pid, name)).startswith("socket:")
        except OSError:
            pass
    return count


def count_sockets_left(c, idle):
    """After the attack and without jobs, the coordinator has as many sockets as at the start, and a few of this test."""
    try:
        wait_for(lambda: coordinator_sockets(c) <= idle + 4, "connections to be closed", 150)
        return 0
    except Timeout:
        return coordinator_sockets(c) - idle


def count_processes_left(c):
    """Daemons that are told to end leave no process."""
    for daemon in [*c.agents.values(), c.coordinator]:
        daemon.stop(60)
    try:
        c.wait_gone(timeout=30)
    except Timeout:
        left = c.processes()
        print("left: %s" % left)
        return len(left)
    return 0


def count_namespaces_left(tag):
    left = [name for name in os.listdir("/run/netns") if tag in name]
    left += [name for name in os.listdir("/sys/class/net") if tag in name]
    return len(left)
