"""Programs in the foreground of a terminal."""
import os
import pty
import select
import time

from lib.cluster import SLOW, program


class Terminal:
    """A program in the foreground of a terminal of its own."""

    def __init__(self, cluster, env, *args, file=program("ddpctl")):
        self.seen = b""
        pid, self.master = pty.fork()
        if pid == 0:
            os.chdir(cluster.dir)
            os.execve(file, [os.path.basename(file), *map(str, args)], dict(env, TERM="xterm"))
        self.pid = pid

    def read_some(self, timeout, waiting):
        """Reads what comes next. False at the end."""
        ready, _, _ = select.select([self.master], [], [], max(0, timeout))
        assert ready, "waited for %s, saw %r" % (waiting, self.seen)
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.seen += data
        return data

    def read(self, until=None, timeout=20):
        """Reads until the text appears, or to the end."""
        end = time.monotonic() + timeout * SLOW
        while until is None or until not in self.seen:
            if not self.read_some(end - time.monotonic(), repr(until)):
                assert until is None, "waited for %r, saw %r and the end" % (until, self.seen)
                break
        return self.seen

    def type(self, keys):
        os.write(self.master, keys)

    def wait(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)
