"""Problems with processes, ports and GPUs, and with messages about them."""
import glob
import os
import signal
import subprocess
import sys
import time

from lib.cluster import Cluster, SIGKILL, alive, program, wait_for
from lib.ring_jobs import give_order, await_verdict, pid_of, ring

CGROUP = "/sys/fs/cgroup"


def text_of(*path):
    with open(os.path.join(*path)) as f:
        return f.read()


def control_group(kind, name):
    """Makes a group of a version 1 controller. Returns None if that is impossible."""
    path = os.path.join(CGROUP, kind, name)
    try:
        os.mkdir(path)
        return path
    except OSError:
        return None


def test_master_ports_do_not_collide():
    """Elsewhere two jobs on one machine use the same master port. Here each job leases a port, also against other clusters: two
    jobs of one cluster and two private ones listen at the same time."""
    code = ("import os, socket, time\n"
            "server = socket.create_server(('', int(os.environ['MASTER_PORT'])))\n"
            "open('up-%s' % os.environ['MASTER_PORT'], 'w').close()\n"
            "while not os.path.exists('finish'): time.sleep(0.01)\n")
    command = ["--", "/usr/bin/python3", "-c", code]
    with Cluster(agents=1, slots=2) as c:
        jobs = [c.submit(*command), c.submit(*command)]
        runs = [c.popen("run", *command, env=c.env) for _ in range(2)]
        wait_for(lambda: len(glob.glob(c.dir + "/up-*")) == 4, "four ports")
        c.write("finish", "")
        assert [run.wait(timeout=30) for run in runs] == [0, 0]
        for job in jobs:
            assert c.wait_job(job, "succeeded")["restarts_used"] == 0


def test_gpus_are_leased_by_uuid():
    """Elsewhere a launcher cannot choose GPUs, so jobs that share a machine meet on GPU 0. Here each rank's GPUs are leased by
    UUID: on a node with four GPUs two jobs have two each, and a third job waits."""
    from lib.rpc import FakeAgent, connect  # where it is installed
    uuids = ["GPU-%d" % i for i in range(4)]
    with Cluster(agents=0) as c:
        node = FakeAgent(connect("unix:" + os.path.join(c.state, "coordinator.sock")), "n1", slots=8, gpus=uuids)
        c.wait_nodes(1)
        jobs = [c.submit("--device", "cuda", "--gpus-per-proc", "1", "--procs-per-node", "2", "--", "true")
                for _ in range(3)]
        wait_for(lambda: node.group(jobs[0]) and node.group(jobs[1]), "two wishes")
        held = [[list(s.gpu_uuids) for s in node.group(job).spawns] for job in jobs[:2]]
        assert all(len(uuids) == 1 for group in held for uuids in group), held
        assert sorted(u for group in held for uuids in group for u in uuids) == uuids, held
        assert "GPU" in c.job(jobs[2])["reason"] and c.job(jobs[2])["state"] == "queued", c.job(jobs[2])
        node.exit(jobs[0])
        wait_for(lambda: node.group(jobs[2]), "the third's turn")
        assert sorted(s.gpu_uuids[0] for s in node.group(jobs[2]).spawns) == sorted(u for u, in held[0])
        node.close()


def test_failure_names_its_cause():
    """Elsewhere: ChildFailedError: exitcode -9, error_file N/A. Here: the rank that failed first, its signal or exit code, its last
    output, and whether it ran out of memory."""
    script = ("[ $RANK = 1 ] || exec sleep 1000\n"
              "for i in 1 2 3; do echo \"words $i\" >&2; done; %s\n")
    with Cluster(agents=1, slots=2) as c:
        for end, code, said in (("kill -9 $$", 137, "signal 9 (SIGKILL)"), ("exit 3", 3, "code 3")):
            job = c.submit("--procs-per-node", "2", "--max-restarts", "0", "--", "sh", "-c", script % end)
            waited = c.ddpctl("wait", job, check=False)
            assert waited.code == code and said in waited.err and "rank 1 on n1" in waited.err, waited
            assert "  | words 3\n" in waited.err, waited
        group = control_group("memory", "ddp-test-%d" % os.getpid())
        if not group:
            print("   (no memory controller of version 1: out of memory is left to the test `supervisor`)")
            return
        try:
            with open(group + "/memory.limit_in_bytes", "w") as f:
                f.write("64M")
            eat = "open('%s/cgroup.procs', 'w').write('0'); x = bytearray(512 << 20)" % group
            job = c.submit("--max-restarts", "0", "--", "/usr/bin/python3", "-c", eat)
            waited = c.ddpctl("wait", job, check=False)
            assert waited.code == 137 and "memory" in waited.err, waited
        finally:
            os.rmdir(group)


def test_hanging_rank_is_named():
    """Every rank waits in a collective, except one. ddpctl why names this rank and says what it does instead."""
    with Cluster(agents=1, slots=3) as c:
        job, where = ring(c)
        give_order(where, 2, "sleep")
        said = await_verdict(c, job, "asleep", 2)
        assert "rank 2 on n1" in said["sentence"], said["sentence"]


def test_stopped_rank_ends_its_generation():
    """Elsewhere a rank that stands still keeps sending heartbeats. Here stall_timeout limits the time without progress: the
    generation ends, and its reason names the rank."""
    with Cluster(agents=1, slots=3) as c:
        job, where = ring(c, extra="stall_timeout: 5s\ngrace: 1s\nmax_restarts: 0\n")
        os.kill(pid_of(where, 1), signal.SIGSTOP)
        status = c.wait_job(job, "failed")
        assert "rank 1 on n1" in status["reason"], status["reason"]
        c.wait_gone(job)


def test_cancelled_job_leaves_no_process():
    """Elsewhere cancelled jobs leave processes that hold GPUs. Here no process stays, however it hides and however the job ends."""
    script = "(setsid sleep 1000 &) ; (trap '' TERM HUP; nohup sleep 1000 &) ; trap '' TERM; touch up-$DDP_JOB_ID; sleep 1000"
    with Cluster(agents=1) as c:
        c.write("hide.sh", script)

        def one():
            job = c.submit(c.write("job.yaml", "workdir: %s\ngrace: 1s\ncommand: [sh, hide.sh]\n" % c.dir))
            wait_for(lambda: os.path.exists("%s/up-%d" % (c.dir, job)) and len(c.processes(job)) >= 4, "it to hide")
            return job
        killed, cancelled = one(), one()
        c.ddpctl("cancel", "--kill", killed)
        c.ddpctl("cancel", cancelled)
        for job in (killed, cancelled):
            c.wait_job(job, "cancelled")
            c.wait_gone(job)
        failed = c.submit("--max-restarts", "0", "--procs-per-node", "2", "--", "sh", "-c",
                          "[ $RANK = 0 ] || exec setsid sleep 1000; setsid sleep 1000 & touch left; exit 1")
        c.wait_job(failed, "failed")
        c.wait_gone(failed)
        wait_for(lambda: not [p for p in c.processes().values() if "ddp-supervisor" in p], "the supervisors to end")


def test_unkillable_process_blocks_nothing_else():
    """Elsewhere a process that SIGKILL does not end (a dead disk) blocks its agent. Here the agent serves other jobs meanwhile. The
    job ends, but its slots are not freed. A frozen process takes the part of the unkillable one."""
    group = control_group("freezer", "ddp-test-%d" % os.getpid())
    if not group:
        print("skipped: this needs the freezer of a version 1 cgroup, since only a frozen process survives SIGKILL")
        sys.exit(77)
    try:
        with Cluster(agents=1, slots=3) as c:
            try:
                job = c.submit("--", "sh", "-c", "echo $$ > pid; echo 0 > %s/cgroup.procs; touch up; sleep 1000" % group)
                wait_for(lambda: os.path.exists(c.dir + "/up"), "it to run")
                with open(group + "/freezer.state", "w") as f:
                    f.write("FROZEN")
                wait_for(lambda: text_of(group, "freezer.state") == "FROZEN\n", "it to freeze")
                c.ddpctl("cancel", "--kill", job)
                other = c.submit("--", "echo", "served")
                c.wait_job(other, "succeeded")
                assert c.logs(other) == "served\n" and alive(int(text_of(c.dir, "pid")))
                c.wait_job(job, "cancelled", timeout=60)
                events = c.ddpctl("events", job).out
                assert "cannot be killed" in events, events
                assert [n["state"] for n in c.nodes()] in (["draining"], ["drained"]), c.nodes()
            finally:
                with open(group + "/freezer.state", "w") as f:
                    f.write("THAWED")
            c.wait_gone(job)
    finally:
        wait_for(lambda: not text_of(group, "tasks"), "the group to be empty")
        os.rmdir(group)


def test_killed_supervisor_leaves_no_orphan():
    """Elsewhere kill -9 of the launcher leaves workers that hold GPU memory. Here workers and their children die with their
    supervisor. If the agent dies too, the next agent finds them."""
    script = "(setsid sleep 1000 &) ; trap '' TERM HUP; echo $$ >> pids; while :; do sleep 1; done"
    with Cluster(agents=1) as c:
        job = c.submit("--procs-per-node", "2", "--max-restarts", "0", "--", "sh", "-c", script)

        def up():
            return os.path.exists(c.dir + "/pids") and len(text_of(c.dir, "pids").split()) == 2 and len(
                c.processes(job)) >= 4
        wait_for(up, "its processes")
        supervisor, = [pid for pid, line in c.processes().items() if "ddp-supervisor" in line]
        c.agents["n1"].kill()
        os.kill(supervisor, SIGKILL)
        wait_for(lambda: not any(alive(int(p)) for p in text_of(c.dir, "pids").split()), "the workers to die with it")
        c.start_agent("n1")
        c.wait_gone(job)
        c.wait_job(job, "failed")


def test_slow_rank_is_waited_for():
    """Elsewhere an exit barrier kills rank 0 while it still saves. Here the job runs until its last rank has ended, on whichever
    node, long after the others were reaped and their exit records removed."""
    script = "[ $RANK = 0 ] || exit 0; while [ ! -e finish ]; do sleep 0.05; done; echo saved > saved"
    with Cluster(agents=2, config="heartbeat: 200ms\nnode_timeout: 1s") as c:
        job = c.submit(c.write("job.yaml", "workdir: %s\nnodes: 2\nprocs_per_node: 2\nlease: 2s\ngrace: 1s\n"
                                           "command: [sh, -c, '%s']\n" % (c.dir, script)))
        wait_for(lambda: sorted(r["state"] for r in c.job(job)["ranks"])[:3] == ["exited"] * 3, "the others to end")
        late = time.monotonic() + 3  # beyond grace and lease
        wait_for(lambda: c.job(job)["state"] == "running" and time.monotonic() > late, "some leases to pass")
        assert not os.path.exists(c.dir + "/saved")
        c.write("finish", "")
        status = c.wait_job(job, "succeeded")
        assert status["generation"] == 1 and text_of(c.dir, "saved") == "saved\n", status


def test_hangup_keeps_the_job():
    """Elsewhere a closed terminal kills the run in spite of nohup. Here a submitted job has no terminal: it does not notice the end
    of the session that follows it."""
    with Cluster(agents=1) as c:
        with open(os.path.join(c.dir, "followed"), "w") as out:
            shell = subprocess.Popen(["setsid", "sh", "-c", '"$0" submit --follow -- sh -c "while [ ! -e finish ]; '
                                      'do sleep 0.05; done"; :', program("ddpctl")], env=c.client_env(), cwd=c.dir, stdout=out,
                                     stderr=out, stdin=subprocess.DEVNULL)
            c.started.append(shell)
            wait_for(lambda: "started" in text_of(c.dir, "followed"), "it to run")
        os.killpg(shell.pid, signal.SIGHUP)
        shell.wait(timeout=20)
        assert c.job(1)["state"] == "running", c.job(1)
        c.write("finish", "")
        assert c.wait_job(1, "succeeded")["generation"] == 1
