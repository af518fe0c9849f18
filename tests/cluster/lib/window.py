"""A shell in a terminal emulator (tmux). A test without tmux is skipped."""
import os
import shutil
import subprocess
import sys

from lib.cluster import wait_for


class Window:
    """One tmux with a server of its own, in which a shell runs."""

    def __init__(self, cluster, env=None, columns=100, rows=30):
        if not shutil.which("tmux"):
            print("tmux is not installed")
            sys.exit(77)
        self.env, self.socket = env or cluster.client_env(), os.path.join(cluster.dir, "tmux")
        script = cluster.write("shell.sh", "export LC_ALL=C.UTF-8 PS1='shell> '; unset NO_COLOR; exec bash --norc --noprofile -i\n")
        self.tmux("new-session", "-d", "-s", "w", "-x", columns, "-y", rows, "sh", script)

    def tmux(self, *args):
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", "-u", *map(str, args)], env=self.env, check=True,
                              stdout=subprocess.PIPE, text=True, timeout=60).stdout

    def text(self):
        return self.tmux("capture-pane", "-p", "-t", "w")

    def type(self, *keys):
        self.tmux("send-keys", "-t", "w", *keys)

    def sees(self, *parts, without=()):
        wait_for(lambda: all(part in self.text() for part in parts) and not any(part in self.text() for part in without),
                 lambda: "%s on the screen, without %s:\n%s" % (parts, without, self.text()), 30)

    def prompts(self):
        """The last line is the shell's prompt: the program before has ended, and the shell reads the next keys."""
        wait_for(lambda: self.text().rstrip().splitlines()[-1:] == ["shell>"], lambda: "the prompt:\n%s" % self.text(), 30)

    def has_normal_modes(self):
        """The shell shows its prompt on the first screen, echoes, and has its cursor."""
        self.prompts()
        assert self.tmux("display-message", "-p", "-t", "w", "#{alternate_on} #{cursor_flag} #{wrap_flag}").split() == ["0", "1", "1"]
        self.type("stty -a | tr ' ' '\\n' | grep -x -e 'icanon;*' -e 'echo;*' | tr '\\n' '+'", "Enter")
        self.sees("icanon+echo+")
        self.type("clear", "Enter")
