"""Programs in the foreground of a terminal, and what the terminal shows."""
import os
import pty
import re
import select
import time

from lib.cluster import SLOW, program


class Screen:
    """The lines of a terminal that never scrolls and has no right border. It knows the control sequences that ddpctl writes."""
    TOKEN = re.compile(rb"\x1b\[\??(\d*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")

    def __init__(self):
        self.rows, self.row, self.column, self.rest = [b""], 0, 0, b""

    def feed(self, data):
        self.rest += data
        while True:
            token = self.TOKEN.match(self.rest)
            if not token:
                return  # nothing, or the start of a control sequence
            self.rest = self.rest[token.end():]
            number, final, end, text = token.groups()
            if text:
                row = self.rows[self.row].ljust(self.column)
                self.rows[self.row] = row[:self.column] + text + row[self.column + len(text):]
                self.column += len(text)
            elif end == b"\n":
                self.row += 1
                self.rows += [b""] * (self.row == len(self.rows))
            elif end == b"\r":
                self.column = 0
            elif final == b"A":
                self.row -= int(number or 1)
            elif final == b"G":
                self.column = int(number or 1) - 1
            elif final in b"JK":
                self.rows[self.row] = self.rows[self.row][:self.column]
                if final == b"J":
                    del self.rows[self.row + 1:]
            else:
                assert final in b"mhl", token

    def lines(self):
        """The lines without those that are empty at the end."""
        return b"\n".join(self.rows).rstrip().decode(errors="replace").split("\n")


class Terminal:
    """A program in the foreground of a terminal of its own."""

    def __init__(self, cluster, env, *args, file=program("ddpctl")):
        self.seen, self.screen = b"", Screen()
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

    def read_screen(self, *lines, timeout=20, ignore="\0"):
        """Reads until the screen shows exactly these lines, and others that begin with `ignore`. Not to be mixed with read()."""
        end = time.monotonic() + timeout * SLOW
        while [line for line in self.screen.lines() if not line.startswith(ignore)] != list(lines):
            data = self.read_some(end - time.monotonic(), "%s, the screen shows %s" % (lines, self.screen.lines()))
            assert data, "waited for %s, the screen shows %s at the end" % (lines, self.screen.lines())
            self.screen.feed(data)

    def type(self, keys):
        os.write(self.master, keys)

    def wait(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.master)
        return os.waitstatus_to_exitcode(status)
