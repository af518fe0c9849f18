"""A real Slurm for tests: slurmctld on this machine, and for each node a slurmd in a network namespace with a host name, an address and
ports of its own.

    from lib.slurm import Slurm
    with Slurm() as s:
        job = s.sbatch("srun ddpctl run -- hostname", "--nodes=2", wait=True)
        assert job.code == 0, job
        print(job.out)

Tests skip (exit 77) if Slurm is not installed or if namespaces cannot be made. All paths are in the test's directory. munge is not
needed, the system starts nothing, and nothing stays.
"""
import os
import shutil
import socket
import subprocess
import sys
import time

from lib.cluster import BIN, Cluster, Daemon, Network, Result, free_port, need_root, wait_for

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo", "squeue", "scontrol")

CONF = """\
ClusterName=ddptest
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmdPort={node_port}
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/slurmctld.log
StateSaveLocation={dir}/state
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmdLogFile={dir}/slurmd.%n.log
SlurmdSpoolDir={dir}/spool.%n
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=60
InactiveLimit=0
KillWait=20
MinJobAge=300
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0,sched_interval=1
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
{nodes}
PartitionName=test Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def need_slurm():
    """Skips the test if Slurm is not installed."""
    need_root()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        print("skipped: Slurm is not installed (%s; scripts/setup --for-tests)" % ", ".join(missing))
        sys.exit(77)


class Slurm(Cluster):
    def __init__(self, names=("n1", "n2"), cpus=4):
        need_slurm()
        super().__init__(network=Network(names), start=False)
        self.names, self.cpus = list(names), cpus
        self.daemons = []
        try:
            self.configure()
            self.start_slurm()
        except BaseException:
            self.failed = True
            self.close()
            raise

    def configure(self):
        self.conf = self.path("slurm.conf")
        self.env["SLURM_CONF"] = self.conf
        self.env["TMPDIR"] = self.path("tmp")
        os.mkdir(self.env["TMPDIR"])
        self.env["PATH"] = BIN + ":" + self.env["PATH"]
        os.mkdir(self.path("state"))
        nodes = "\n".join("NodeName=%s NodeAddr=%s CPUs=%d RealMemory=500 State=UNKNOWN" % (
            name, self.network.address[name], self.cpus) for name in self.names)
        self.write("slurm.conf", CONF.format(
            host=socket.gethostname().partition(".")[0], address=self.network.host, port=free_port(10000, 19000),
            node_port=6818, dir=self.dir, nodes=nodes, names=",".join(self.names)))
        self.write("hosts", "127.0.0.1 localhost\n" + "".join(
            "%s %s\n" % (self.network.address[name], name) for name in self.names))

    def path(self, name):
        return os.path.join(self.dir, name)

    def enter(self, name):
        """Returns the command prefix that runs a program on a node, where the nodes know each other's names."""
        return [*self.network.enter(name), "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', self.path("hosts")]

    def start_slurm(self):
        self.start_daemon("slurmctld", ["slurmctld", "-D", "-c"])
        for name in self.names:
            os.mkdir(self.path("spool." + name))
            self.start_daemon("slurmd-" + name, ["slurmd", "-D", "-N", name], self.enter(name))
        wait_for(self.idle, lambda: "Slurm's nodes to be idle\n" + self.slurm_logs(), 30)

    def start_daemon(self, name, args, prefix=()):
        self.daemons.append(Daemon(self, name, args, prefix).start())

    def idle(self):
        states = self.run(["sinfo", "-h", "-N", "-o", "%t"]).out.split()
        return len(states) == len(self.names) and set(states) == {"idle"}

    def slurm_logs(self):
        text = ""
        for name in ["slurmctld.log", *["slurmd.%s.log" % n for n in self.names]]:
            if os.path.exists(self.path(name)):
                with open(self.path(name), errors="replace") as f:
                    text += "--- %s\n%s" % (name, f.read()[-3000:])
        return text

    # ---- jobs

    def sbatch(self, script, *args, wait=False, timeout=60.0, env=None):
        """Submits the text of a script. With wait it returns, after the script's end, a Result with its exit code and output. Otherwise
        it returns the job's number; output(number) returns the output so far."""
        path = self.write("script-%d.sh" % len(os.listdir(self.dir)), "#!/bin/bash\n" + script + "\n")
        return self.sbatch_file(path, *args, wait=wait, timeout=timeout, env=env)

    def sbatch_file(self, path, *args, script_args=(), wait=False, timeout=60.0, env=None):
        done = self.run(["sbatch", "--parsable", "--output", self.path("slurm-%j.out"), "--error",
                         self.path("slurm-%j.err"), *(["--wait"] if wait else []), *args, path, *script_args],
                        timeout=timeout,
                        env=dict(self.env, **(env or {})))
        if not wait:
            assert done.code == 0, done
        number = int(done.out.split(";")[0])
        if not wait:
            return number
        return Result(done.args, done.code, self.output(number), done.err + self.output(number, "err"))

    def popen_sbatch(self, path, *args, script_args=()):
        """Runs sbatch --wait in the background, because it looks at its job only every ten seconds."""
        process = subprocess.Popen(["sbatch", "--output=/dev/null", *args, path, *script_args], env=self.env,
                                   cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.started.append(process)
        return process

    def output(self, job, kind="out"):
        try:
            with open(self.path("slurm-%d.%s" % (job, kind)), errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def job_state(self, job):
        """Returns the state as Slurm shows it, for example "RUNNING"."""
        shown = self.run(["scontrol", "-o", "show", "job", str(job)]).out
        return shown.partition("JobState=")[2].split(" ")[0]

    def wait_state(self, job, *states, timeout=40.0):
        wait_for(lambda: self.job_state(job) in states, lambda: "Slurm's job %d to be %s, it is %s\n%s%s" % (
            job, "/".join(states), self.job_state(job), self.output(job), self.output(job, "err")), timeout)

    def wait_output(self, job, text, kind="out", timeout=40.0):
        wait_for(lambda: text in self.output(job, kind), lambda: "'%s' from Slurm's job %d, it wrote\n%s%s" % (
            text, job, self.output(job), self.output(job, "err")), timeout)

    def start_again(self, job):
        """Starts a requeued job two seconds after its previous end; Slurm would wait for minutes. An earlier start would fail: within
        a second of the kill, a node takes the new job for the killed one."""
        begin = time.time() + 2

        def runs():
            if time.time() > begin:
                self.run(["scontrol", "update", "JobId=%d" % job, "StartTime=now"])
            return self.job_state(job) == "RUNNING"
        wait_for(runs, lambda: "Slurm's job %d to run again\n%s" % (job, self.output(job, "err")), 40)

    def scancel(self, job, *args):
        self.run(["scancel", *args, str(job)], check=True)

    def wait_no_job_processes(self, timeout=30.0):
        """Waits until no process of a job runs, that is, no process with this test's mark except Slurm's daemons."""
        own = {p.pid for p in [*self.daemons, *self.started]}

        def left():
            return {pid: line for pid, line in self.processes().items()
                    if pid not in own and "slurmstepd" not in line.split(" ")[0]}
        wait_for(lambda: not left(), lambda: "processes to be gone: %s" % left(), timeout)

    def close(self):
        if self.failed:
            sys.stderr.write(self.slurm_logs())
        if any(d.running() for d in self.daemons):
            subprocess.run(["scancel", "--full", "--state=RUNNING", "--user=root"], env=self.env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)
        for daemon in reversed(self.daemons):
            daemon.stop()
        super().close()
