"""Three booted Debian 12 systems on one machine: systemd as the first process of each, a network between them, and a shared directory.
They are made with systemd-nspawn, debootstrap and overlayfs in namespaces of the test, so that only the cache changes on this machine.

DDP_SYSTEMS_CACHE (default /var/tmp/ddp-systems) keeps the base system, which takes a minute or two to download and unpack.
"""
import os
import shutil
import signal
import subprocess
import sys
import time

CACHE = os.environ.get("DDP_SYSTEMS_CACHE", "/var/tmp/ddp-systems")
SUITE, MIRROR = "bookworm", os.environ.get("DDP_SYSTEMS_MIRROR", "http://deb.debian.org/debian")
PACKAGES = ["systemd", "systemd-sysv", "dbus", "iproute2", "procps", "openssl", "sqlite3", "passwd"]
INSIDE = "DDP_SYSTEMS_INSIDE"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def skip(why):
    print("skipped: " + why)
    sys.exit(77)


def say(*words):
    print("%7.1f s " % time.monotonic(), *words, flush=True)


def host(*args, check=True, **options):
    done = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if check and done.returncode:
        raise AssertionError("%s: exit %d\n%s" % (" ".join(args), done.returncode, done.stdout[-4000:]))
    return done


def wait_for(holds, what, timeout=60.0):
    end = time.monotonic() + timeout
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError("waited %.0f s for %s" % (timeout, what() if callable(what) else what))
        time.sleep(0.1)


def enter(prepare):
    """Starts this program again in mount and network namespaces of its own, with control groups of version 2 only. Calls prepare()
    before that, while the machine's network can be reached."""
    if os.environ.get(INSIDE):
        host("mount", "--make-rprivate", "/")
        host("umount", "--recursive", "/sys/fs/cgroup", check=False)
        if host("mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup", check=False).returncode:
            skip("control groups of version 2 cannot be mounted here")
        host("mount", "-t", "tmpfs", "tmpfs", "/run")  # systemd-nspawn puts files there
        os.makedirs("/run/systemd/nspawn", exist_ok=True)
        return
    if os.geteuid() != 0:
        skip("only root can boot systems")
    for tool in ("systemd-nspawn", "debootstrap", "nsenter", "unshare", "ip"):
        if shutil.which(tool) is None:
            skip("there is no %s (apt install systemd-container debootstrap)" % tool)
    if "overlay" not in open("/proc/filesystems").read():
        skip("the kernel has no overlayfs")
    done = subprocess.run(["unshare", "--mount", "--net", "true"], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        skip("no namespaces here: " + done.stderr.strip())
    prepare()
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "--mount", "--net", "--kill-child", "--fork", sys.executable, *sys.argv])


def base(libraries):
    """Makes the base system of all three, with the packages that ddp's package depends on."""
    root = os.path.join(CACHE, "base")
    wanted = sorted(set(PACKAGES) | set(libraries))
    stamp = os.path.join(CACHE, "base.packages")
    if os.path.exists(stamp) and set(open(stamp).read().split()) >= set(wanted):
        return root
    say("debootstrap into", root)
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(CACHE, exist_ok=True)
    log = os.path.join(CACHE, "debootstrap.log")
    with open(log, "w") as out:
        code = subprocess.run(["debootstrap", "--variant=minbase", "--include=" + ",".join(wanted), SUITE, root, MIRROR],
                              stdin=subprocess.DEVNULL, stdout=out, stderr=out).returncode
    if code:
        skip("debootstrap fails, see %s: %s" % (log, open(log).read()[-300:].replace("\n", " ")))
    with open(stamp, "w") as f:
        f.write("\n".join(wanted))
    return root


class Machine:
    def __init__(self, systems, name, number):
        self.systems, self.name, self.address = systems, name, "10.89.7.%d" % number
        self.dir = os.path.join(systems.dir, name)
        self.root = os.path.join(self.dir, "root")
        self.nspawn = self.leader = None
        for part in ("root", "upper", "work"):
            os.makedirs(os.path.join(self.dir, part))
        host("mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s,upperdir=%s/upper,workdir=%s/work" % (
            systems.base, self.dir, self.dir), self.root)
        self.write("/etc/hostname", name + "\n")
        self.write("/etc/hosts", "127.0.0.1 localhost\n" + "".join("10.89.7.%d %s\n" % (i, n) for i, n in enumerate(systems.names, 1)))
        self.write("/etc/machine-id", "")
        if os.path.lexists(self.root + "/etc/resolv.conf"):
            os.unlink(self.root + "/etc/resolv.conf")

    def write(self, path, text, mode=0o644):
        with open(self.root + path, "w") as f:
            f.write(text)
        os.chmod(self.root + path, mode)

    def boot(self):
        group = "/sys/fs/cgroup/%s/%s" % (self.systems.id, self.name)
        os.makedirs(group, exist_ok=True)

        def join():
            with open(group + "/cgroup.procs", "w") as f:
                f.write("0")
        with open(os.path.join(self.dir, "console"), "w") as out:
            self.nspawn = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--boot", "--directory", self.root, "--machine", self.name, "--register=no",
                 "--keep-unit", "--settings=no", "--console=read-only", "--link-journal=no", "--resolv-conf=off",
                 "--timezone=off", "--network-bridge=" + self.systems.bridge, "--bind=%s:/data" % self.systems.shared],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=join,
                env={"PATH": PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"})
        return self

    def wait_booted(self):
        self.leader = wait_for(self.find_leader, lambda: "%s to boot\n%s" % (self.name, self.console()))
        self.sh("ip link set lo up; ip address add %s/24 dev host0; ip link set host0 up" % self.address)
        wait_for(lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded"),
                 lambda: "%s to come up\n%s" % (self.name, self.console()))

    def console(self):
        return open(os.path.join(self.dir, "console"), errors="replace").read()[-3000:]

    def find_leader(self):
        """Returns the first process of the system: the descendant of nspawn that has pid 1 in its own namespace."""
        if self.nspawn.poll() is not None:
            raise AssertionError("systemd-nspawn ended with %d\n%s" % (self.nspawn.returncode, self.console()))
        todo = [self.nspawn.pid]
        while todo:
            pid = todo.pop()
            try:
                status = open("/proc/%d/status" % pid).read()
                todo += map(int, open("/proc/%d/task/%d/children" % (pid, pid)).read().split())
            except OSError:
                continue
            numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
            if len(numbers) > 1 and numbers[-1] == "1" and os.path.exists("/proc/%d/root/run/dbus/system_bus_socket" % pid):
                return pid
        return None

    def run(self, *args, check=True, stdin=None, timeout=120.0):
        done = subprocess.run(["nsenter", "--target", str(self.leader), "--all", "--wdns=/", "env", "-i", "PATH=" + PATH, "HOME=/root",
                               "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER=", *map(str, args)],
                              input=stdin, stdin=subprocess.DEVNULL if stdin is None else None, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout)
        if check and done.returncode:
            raise AssertionError("%s: %s: exit %d\n%s%s" % (self.name, " ".join(map(str, args)), done.returncode, done.stdout[-3000:],
                                                            done.stderr[-3000:]))
        return done

    def sh(self, script, **options):
        return self.run("sh", "-ec", script, **options).stdout

    def install(self, package):
        shutil.copy(package, self.root + "/root/ddp.deb")
        done = self.run("apt-get", "install", "-y", "--no-install-recommends", "/root/ddp.deb", timeout=300)
        assert "does not start again" not in done.stderr + done.stdout, done
        return done

    def active(self, unit):
        return self.run("systemctl", "is-active", unit, check=False).stdout.strip()

    def journal(self, unit):
        return self.run("journalctl", "--no-pager", "-n", "60", "-o", "cat", "-u", unit, check=False).stdout

    def close(self):
        for pid in (self.leader, self.nspawn.pid if self.nspawn else None):
            try:
                if pid:
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if self.nspawn:
            self.nspawn.wait(timeout=30)
        host("umount", "--recursive", self.root, check=False)


class Systems:
    """`with Systems(package names) as s:` boots box1, box2 and box3 at the same time."""

    def __init__(self, libraries, names=("box1", "box2", "box3")):
        self.names, self.base = names, base(libraries)
        self.id = "ddp-systems-%d" % os.getpid()
        self.dir, self.bridge = os.path.join(CACHE, self.id), "ddpsys"
        self.shared = os.path.join(self.dir, "shared")
        os.makedirs(self.shared)
        os.chmod(self.shared, 0o777)
        self.machines = []
        host("ip", "link", "set", "lo", "up")
        host("ip", "link", "add", self.bridge, "type", "bridge")
        host("ip", "address", "add", "10.89.7.254/24", "dev", self.bridge)
        host("ip", "link", "set", self.bridge, "up")

    def __enter__(self):
        try:
            for number, name in enumerate(self.names, 1):
                self.machines.append(Machine(self, name, number))
                self.machines[-1].boot()
            for machine in self.machines:
                machine.wait_booted()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        if name not in self.__dict__.get("names", ()):
            raise AttributeError(name)
        return self.machines[self.names.index(name)]

    def close(self):
        for machine in self.machines:
            machine.close()
        # The kernel removes a dead system's network device some time after its last process. The next system needs the name.
        for device in ["vb-" + name for name in self.names] + [self.bridge]:
            host("ip", "link", "delete", device, check=False)
            wait_for(lambda: not os.path.exists("/sys/class/net/" + device), "%s to be removed" % device)
        shutil.rmtree(self.dir, ignore_errors=True)
        for name in self.names:
            for top, _, _ in os.walk("/sys/fs/cgroup/%s/%s" % (self.id, name), topdown=False):
                try:
                    os.rmdir(top)
                except OSError:
                    pass
