"""A worker that sums a number around a ring of sockets, step after step: a collective without a library. It prints each step. The
first argument is a directory. Rank R writes its pid to pid.R there. When it finds a file do.R, it does once what the file says
(sleep; kernel; exit CODE; crash SIGNAL; say CODE WORDS...). With "spin" as a further argument it does not sleep while it waits for
a peer."""
import os
import socket
import sys
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = sys.argv[1]
start = os.environ["DDP_GENERATION"]
spin = "spin" in sys.argv[2:]

with open(os.path.join(where, "tmp.%d" % rank), "w") as f:
    f.write(str(os.getpid()))
os.rename(f.name, os.path.join(where, "pid.%d" % rank))

# each rank listens, writes its address to a file, and connects to the next rank
listener = socket.create_server(("127.0.0.1", 0))
with open(os.path.join(where, "tmp.%d" % rank), "w") as f:
    f.write("%s %d" % listener.getsockname()[:2])
os.rename(f.name, os.path.join(where, "at.%s.%d" % (start, rank)))
following = os.path.join(where, "at.%s.%d" % (start, (rank + 1) % world))
while not os.path.exists(following):
    time.sleep(0.01)
host, port = open(following).read().split()
to = socket.create_connection((host, int(port)))
frm, _ = listener.accept()
if spin:
    frm.setblocking(False)


def receive():
    data = b""
    while len(data) < 8:
        try:
            piece = frm.recv(8 - len(data))
        except BlockingIOError:
            continue
        if not piece:
            sys.stderr.write("RuntimeError: connection closed by peer\n")
            sys.exit(1)
        data += piece
    return int.from_bytes(data, "little")


step = 0
order = os.path.join(where, "do.%d" % rank)
while True:
    if os.path.exists(order):
        words = open(order).read().split()
        os.unlink(order)
        if words[0] == "sleep":
            time.sleep(3600)
        if words[0] == "kernel":  # after vfork a parent waits in the kernel until its child runs a program, and this child does not yet
            fifo = os.path.join(where, "fifo")
            os.mkfifo(fifo)
            os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])
        if words[0] == "exit":
            sys.exit(int(words[1]))
        if words[0] == "crash":
            os.kill(os.getpid(), int(words[1]))
        if words[0] == "say":
            sys.stderr.write(" ".join(words[2:]) + "\n")
            sys.exit(int(words[1]))
    time.sleep(0.02)
    total = 0
    for _ in range(world):
        to.sendall(total.to_bytes(8, "little"))
        total = receive() + 1
    step += 1
    print("step %d sum %d" % (step, total), flush=True)
