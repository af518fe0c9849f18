"""Hosts on which a test types commands: network namespaces with files of their own, an `ssh` between them and a `systemctl`.

    with Cluster(agents=0, start=False, network=Network(("box1", "box2"))) as c:
        hosts = Hosts(c, ("box1", "box2"), directory)
        lines, code = hosts.type("ana@box1", "ddpctl whoami")
"""
import glob
import os
import re
import subprocess
import threading

from lib.cluster import BIN, wait_for

COMMAND_S = 240

# A host's own files: each of these directories begins as it is on this machine, without ddp's files, and changes stay in the test's
# directory. The programs are in /usr/local, where every account can run them.
OWN_FILES = """
for d in etc var srv run home; do
    mkdir -p "$0/$d.new" "$0/$d.work"
    mount -t overlay none -o "lowerdir=/$d,upperdir=$0/$d.new,workdir=$0/$d.work" /$d || exit
done
rm -rf /etc/ddp /var/lib/ddp /var/lib/ddp-agent /var/log/ddp /run/ddp
cat "$0/../hosts" > /etc/hosts
mount -t overlay none -o "lowerdir=%s:/usr/local" /usr/local || exit
cd "$1" && shift && exec "$@"
""" % os.path.dirname(BIN)

SSH = """#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
host=${1%%%%.*}
shift
exec nsenter --target "$(cat %s/$host.pid)" --net --mount --uts -- sh -c "cd / && $*"
"""

# Starts and ends a daemon as its unit does: `start` returns when the daemon is ready.
SYSTEMCTL = """#!/usr/bin/python3
import os, signal, socket, subprocess, sys, time
verb, unit = sys.argv[1], sys.argv[-1]
pid_file = "/run/%s.pid" % unit
if verb in ("stop", "disable", "restart") and os.path.exists(pid_file):
    with open(pid_file) as f:
        daemon = os.pidfd_open(int(f.read()))
    signal.pidfd_send_signal(daemon, signal.SIGTERM)
    while not __import__("select").select([daemon], [], [], 60)[0]:
        sys.exit("%s does not end" % unit)
    os.remove(pid_file)
if verb in ("start", "enable", "restart"):
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind("\\0%s-%d" % (os.environ["DDP_TEST_ID"], os.getpid()))
    told.settimeout(60)
    with open("/var/log/%s.log" % unit, "a") as log:
        daemon = subprocess.Popen([unit], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
                                  env=dict(os.environ, NOTIFY_SOCKET="@" + told.getsockname()[1:].decode()))
    with open(pid_file, "w") as f:
        f.write(str(daemon.pid))
    while b"READY=1" not in told.recv(4096):
        pass
"""


class Shell:
    """A bash in which one line after the other is typed. Its commands have /dev/null as their input, so none takes the next line away."""

    def __init__(self, enter, env, directory):
        lines, typed = os.pipe()
        os.fchmod(lines, 0o644)  # also another account opens it
        self.process = subprocess.Popen([*enter, "bash", "--norc", "/dev/fd/%d" % lines], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(lines,), text=True,
                                        errors="replace", env=env, cwd=directory)
        os.close(lines)
        self.typed = os.fdopen(typed, "w")
        self.lines = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def type(self, command):
        """Returns the lines that the command prints, and its exit code."""
        first = len(self.lines)
        self.typed.write(command + "\ntyped=$?; echo; echo typed $typed\n")
        self.typed.flush()

        def done():
            return self.lines[first:] and re.fullmatch(r"typed \d+", self.lines[-1])

        wait_for(done, lambda: "the end of `%s`:\n%s" % (command, "\n".join(self.lines[first:])), COMMAND_S)
        printed = self.lines[first:-1]
        while printed and not printed[-1]:
            printed.pop()
        return printed, int(self.lines[-1].split()[1])


class Hosts:
    """The cluster's network has these names. Shells begin in `directory`, a path on the host."""

    def __init__(self, cluster, names, directory, env):
        self.cluster, self.directory = cluster, directory
        self.env = dict(env, PATH="%s/bin:/usr/local/bin:%s" % (cluster.dir, env["PATH"]))
        self.shells = {}
        with open(os.path.join(cluster.dir, "hosts"), "w") as f:
            f.write("127.0.0.1 localhost\n")
            f.writelines("%s %s %s.example.org\n" % (cluster.network.address[name], name, name) for name in names)
        os.makedirs(os.path.join(cluster.dir, "bin"), exist_ok=True)
        for name, text in (("ssh", SSH % cluster.dir), ("systemctl", SYSTEMCTL)):
            path = os.path.join(cluster.dir, "bin", name)
            with open(path, "w") as f:
                f.write(text)
            os.chmod(path, 0o755)

    def path(self, name, path):
        """Where a file of a host that /srv and so on will have is made before the host's first shell starts."""
        top, _, rest = path.strip("/").partition("/")
        return os.path.join(self.cluster.dir, name, top + ".new", rest)

    def shell(self, where):
        user, _, name = where.rpartition("@")
        if where in self.shells:
            return self.shells[where]
        if user:
            self.shell(name).type(":")
            enter = ["nsenter", "--target", str(self.shells[name].process.pid), "--net", "--mount", "--uts", "--",
                     "runuser", "-u", user, "--", "env", "-C", "/home/" + user, "HOME=/home/" + user, "USER=" + user]
            shell = Shell(enter, self.env, "/")
        else:
            own = os.path.join(self.cluster.dir, name)
            shell = Shell([*self.cluster.network.enter(name), "sh", "-c", OWN_FILES, own, self.directory], self.env, "/")
            with open(own + ".pid", "w") as f:
                f.write(str(shell.process.pid))  # nsenter and sh exec in place
        self.cluster.started.append(shell.process)
        self.shells[where] = shell
        return shell

    def type(self, where, command):
        return self.shell(where).type(command)

    def daemon_logs(self):
        """The last lines of the daemons that systemctl has started."""
        text = ""
        for path in sorted(glob.glob(os.path.join(self.cluster.dir, "*", "var.new", "log", "ddp-*.log"))):
            with open(path, errors="replace") as f:
                text += "--- %s\n%s" % (path, f.read()[-4000:])
        return text
