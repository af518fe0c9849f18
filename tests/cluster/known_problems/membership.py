"""Problems with nodes that come, go and die, and with the host of the rendezvous."""
import os
import sqlite3

from lib.cluster import Cluster, SIGKILL, wait_for
from lib.counting import Counting
from lib.machines import kill_machine

QUICK = "heartbeat: 300ms\nnode_timeout: 1500ms\nsettle: 200ms"
ENDLESS = "sleep 1000 & wait"


def lines(c, name="log"):
    try:
        with open(os.path.join(c.dir, name)) as f:
            return f.read().splitlines()
    except OSError:
        return []


def rows(c, query, *values):
    db = sqlite3.connect("file:%s?mode=ro" % os.path.join(c.state, "ddp.db"), uri=True, timeout=10)
    try:
        return db.execute(query, values).fetchall()
    finally:
        db.close()


def test_dead_node_is_noticed():
    """Elsewhere the survivors wait in a collective until its timeout. Here the node is lost after node_timeout: the survivors are
    stopped, and the job goes on without the node when its lease has run out."""
    with Cluster(agents=2, config=QUICK) as c:
        job = c.submit(c.write("job.yaml", "workdir: %s\nnodes: \"1:2\"\nmax_restarts: 1\nlease: 3s\ngrace: 1s\ncommand: [sh, -c, "
                                           "'echo $DDP_GENERATION $DDP_NODE $WORLD_SIZE >> log; exec sleep 1000']\n" % c.dir))
        wait_for(lambda: len(lines(c)) == 2, "both ranks")
        victim = c.job(job)["ranks"][1]["node"]
        survivor = c.job(job)["ranks"][0]
        kill_machine(c, victim)
        wait_for(lambda: "node %s lost" % victim in c.ddpctl("events", job).out, "its loss to be said")
        wait_for(lambda: not os.path.exists("/proc/%d" % survivor["pid"]), "the survivor to be stopped")
        wait_for(lambda: len(lines(c)) == 3, "the next generation")
        assert lines(c)[2] == "2 %s 1" % survivor["node"], lines(c)
        assert c.job(job)["restarts_used"] == 1


def test_leaving_agent_keeps_the_job():
    """Elsewhere an agent that leaves or dies closes the rendezvous for all. Here the coordinator owns the membership: killing or
    stopping an agent changes nothing, and leaving a drained node does not count as a restart."""
    with Cluster(agents=2, config=QUICK) as c:
        count = Counting(c)
        for stop in (c.agents["n2"].kill, c.agents["n2"].stop):
            stop()
            c.start_agent("n2")
            count.wait_growth()
        c.wait_nodes(2)
        count.finish()
        other = c.submit("--nodes", "1", "--", "sh", "-c", ENDLESS)
        c.wait_job(other, "running")
        idle, = {"n1", "n2"} - set(c.job(other)["nodes"])
        c.ddpctl("drain", idle)
        kill_machine(c, idle)
        c.wait_nodes(1, "lost")
        assert c.job(other)["state"] == "running" and c.job(other)["generation"] == 1


def test_killed_coordinator_keeps_training():
    """Elsewhere the training ends with the node that hosts the rendezvous. Here the workers do not notice a killed coordinator."""
    with Cluster(agents=2) as c:
        count = Counting(c)
        c.coordinator.kill()
        count.wait_growth(20)
        c.start_coordinator()
        c.wait_nodes(2)
        count.wait_growth()
        count.finish()


def test_survivor_becomes_rank_0():
    """When rank 0's node is lost, a survivor takes its rank, hosts the rendezvous, and trains on from the snapshot."""
    train = ("nodes: \"1:2\"\ndevice: cpu\ntrain:\n  model: {type: mlp, sizes: [20, 64, 1]}\n"
             "  data: {type: synthetic, samples: 2048}\n  batch: 32\n  epochs: 1000000\n"
             "  snapshot: {dir: %s/out, every: 100, keep: 3}\n")
    with Cluster(agents=2, config=QUICK) as c:
        job = c.submit(c.write("job.yaml", train % c.dir))
        wait_for(lambda: (c.job(job)["snapshot"] or {}).get("step", 0) > 100, "a snapshot")
        first, second = c.job(job)["nodes"]
        kill_machine(c, first)
        wait_for(lambda: c.job(job)["generation"] == 2 and c.job(job)["state"] == "running", "the next generation")
        rank, = c.job(job)["ranks"]
        assert (rank["rank"], rank["node"]) == (0, second), rank
        (source,), = rows(c, "SELECT source_step FROM generation WHERE job = ? AND number = 2", job)
        assert source > 100, source
        wait_for(lambda: c.job(job)["snapshot"]["step"] > source + 200, "it to train on")


def test_one_restart_budget():
    """Elsewhere each agent has its own max_restarts and restart count. Here failures on both nodes use one budget, and every rank
    of a generation sees the same count."""
    script = ("echo $DDP_GENERATION $RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS >> log\n"
              "while [ $(grep -c \"^$DDP_GENERATION \" log) -lt 2 ]; do sleep 0.01; done\n"
              "[ $RANK = $(($DDP_GENERATION % 2)) ] && exit 9\nexec sleep 1000\n")
    with Cluster(agents=2) as c:
        c.write("fail.sh", script)
        job = c.submit(c.write("job.yaml", "workdir: %s\nnodes: 2\nmax_restarts: 2\nrestart_on: any\ngrace: 1s\n"
                                           "command: [sh, fail.sh]\n" % c.dir))
        status = c.wait_job(job, "failed")
        assert (status["generation"], status["restarts_used"], status["exit_code"]) == (3, 2, 9), status
        assert sorted(lines(c)) == ["%d %d %d 2" % (g, rank, g - 1) for g in (1, 2, 3) for rank in (0, 1)], lines(c)
        failed = [node for node, in rows(c, "SELECT s.node FROM generation g JOIN spawn s ON s.job = g.job AND "
                                            "s.spawn = g.failed_spawn WHERE g.job = ?", job)]
        assert len(failed) == 3 and set(failed) == {"n1", "n2"}, failed


def test_bootstrap_id_is_new_each_generation():
    """Elsewhere a restarted group can meet the previous group's id. Here id, key and port belong to one generation."""
    with Cluster(agents=1) as c:
        train = c.submit(c.write("train.yaml", "procs_per_node: 2\ndevice: cpu\ntrain:\n  model: {type: linear, in: 20, out: 1}\n"
                                               "  data: {type: synthetic, samples: 2048}\n  batch: 32\n  epochs: 1000000\n"))
        for generation in (1, 2, 3):
            wait_for(lambda: c.job(train)["generation"] == generation and c.job(train)["state"] == "running", "it to run")
            wait_for(lambda: c.job(train)["progress"]["step"] > 0, "steps")
            if generation < 3:
                os.kill(c.job(train)["ranks"][0]["pid"], SIGKILL)
        ids = rows(c, "SELECT bootstrap, key, master_port FROM generation WHERE job = ?", train)
        assert len(ids) == 3 and all(len(set(column)) == 3 for column in zip(*ids)), ids


def test_host_names_do_not_matter():
    """Elsewhere the master's host name may be one that other nodes cannot resolve, or one that means loopback. Here it is an
    address from which the agent reaches others, whatever the machine's name is."""
    code = ("import os, socket, time\n"
            "at = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
            "if os.environ['RANK'] == '0':\n"
            "    server = socket.create_server(at)\n"
            "    print(at[0], socket.gethostname(), server.accept()[1][0])\n"
            "else:\n"
            "    for _ in range(1000):\n"
            "        try:\n"
            "            socket.create_connection(at, 5)\n"
            "            break\n"
            "        except ConnectionRefusedError:\n"
            "            time.sleep(0.01)\n")
    with Cluster(agents=0) as c:
        renamed = os.geteuid() == 0
        for name in ("n1", "n2"):
            c.start_agent(name)
            if renamed:  # starts the agent again, on a machine whose name cannot be resolved
                c.agents[name].kill()
                c.agents[name].prefix = ["unshare", "--uts", "sh", "-c", 'hostname no-such-host.invalid && exec "$@"', "sh"]
                c.agents[name].start()
        c.wait_nodes(2)
        job = c.submit("--nodes", "2", "--", "/usr/bin/python3", "-c", code)
        c.wait_job(job, "succeeded")
        address, host, _ = c.logs(job, "--rank", "0").split()
        assert address.replace(".", "").isdigit() or ":" in address, address
        assert host == "no-such-host.invalid" or not renamed, host


def test_uneven_nodes():
    """Elsewhere all nodes must have the same number of workers. Here the numbers may differ, and every rank knows its node's."""
    with Cluster(agents=0) as c:
        c.start_agent("n1", slots=1)
        c.start_agent("n2", slots=3)
        c.wait_nodes(2)
        job = c.submit("--nodes", "2", "--procs-per-node", "cpu", "--", "sh", "-c",
                       "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE on $DDP_NODE")
        c.wait_job(job, "succeeded")
        said = sorted(c.logs(job).splitlines())
        assert [s.split()[0] for s in said] == ["%d/4" % rank for rank in range(4)], said
        assert sorted(s.split(" ", 1)[1] for s in said) == ["0/1 on n1", "0/3 on n2", "1/3 on n2", "2/3 on n2"], said
        train = c.submit(c.write("job.yaml", "nodes: 2\nprocs_per_node: cpu\ndevice: cpu\ntrain:\n"
                                             "  model: {type: linear, in: 20, out: 1}\n"
                                             "  data: {type: synthetic, samples: 2048}\n  batch: 32\n  epochs: 3\n"))
        status = c.wait_job(train, "succeeded")
        assert status["world_size"] == 4 and status["progress"]["step"] == 3 * 16, status
