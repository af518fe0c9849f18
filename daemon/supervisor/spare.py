"""Runs in the Python process of a spare (spare.h): imports modules, waits for a rank's orders, and becomes this rank."""
import array
import builtins
import fcntl
import importlib
import importlib.machinery
import json
import os
import runpy
import socket
import struct
import sys
import termios
import types

STAGE_WORKDIR = 1  # enum stage in child.c
TOKEN_FD = 4  # as in child.c; of native workers only
STAGE_BEGUN = -1  # CHILD_BEGUN in child.h
HIGH_FD = 64  # above every number that a rank's descriptors have


def receive(control):
    """Returns the next message and its descriptors. Ends the process if the supervisor has closed the socket."""
    fds = array.array("i")
    data, rights, _, _ = control.recvmsg(1 << 21, socket.CMSG_SPACE(8 * fds.itemsize))
    if not data:
        os._exit(0)
    for _, _, payload in rights:
        fds.frombytes(payload[:len(payload) // fds.itemsize * fds.itemsize])
    return json.loads(data), list(fds)


def set_path(order):
    """Puts the directory of the script into sys.path; for a module, the current directory. Replaces the entry that the interpreter made for
    -c; with -I or -P there is no such entry."""
    if sys.path and sys.path[0] == order.get("old_path", ""):
        name = order["argv"][order["program"]]
        place = order["cwd"] if order["module"] else os.path.dirname(os.path.realpath(os.path.join(order["cwd"], name)))
        order["old_path"] = sys.path[0] = place


def describe_failure(name, e):
    """Returns a text that fits into one message to the supervisor, however long the exception's text is."""
    try:
        text = str(e)
    except BaseException:
        text = "no message"
    return ("%s: %s: %s" % (name, type(e).__name__, text))[:1000].encode("ascii", "replace").decode().replace("\0", "?")


def import_modules(control, names):
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as e:  # also SystemExit, because a module that is a program may raise it
            control.send(json.dumps({"failed": describe_failure(name, e)}).encode())
            os._exit(1)


def find_mark():
    """Returns the address and the length of the value of DDP_SPAWN_ID that /proc/PID/environ shows."""
    with open("/proc/self/environ", "rb") as f:
        at = (b"\0" + f.read()).find(b"\0DDP_SPAWN_ID=")
    with open("/proc/self/stat") as f:
        start = int(f.read().rpartition(")")[2].split()[47])  # env_start
    return start + at + len("DDP_SPAWN_ID=")


def write_mark(address, text, room):
    """Writes the rank's DDP_SPAWN_ID, by which a new supervisor finds the rank's processes if their supervisor has died."""
    import ctypes
    ctypes.memmove(address, text.encode().ljust(room, b"\0"), room)


def place_descriptors(numbers, fds):
    """Gives the descriptors their numbers. Returns the last descriptor, which has no number and which no program inherits."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD) for fd in fds]
    for fd in fds:
        os.close(fd)
    os.closerange(TOKEN_FD, TOKEN_FD + 1)  # /dev/null, which has kept the number free
    for fd, number in zip(high, numbers):
        os.dup2(fd, number, inheritable=True)
        os.close(fd)
    return high[-1]


def parse_environment(entries):
    return dict(entry.split("=", 1) for entry in entries)


def set_environment(given, wanted):
    """Replaces the variables that the supervisor has given. Changes by the interpreter's start (a script such as pyenv's) and by the modules
    are kept, as after an ordinary start."""
    removed = [name for name in given if name not in os.environ]
    wanted.update((name, value) for name, value in os.environ.items() if given.get(name) != value)
    os.environ.clear()
    os.environ.update((name, value) for name, value in wanted.items() if name not in removed)


def hide_own_frames(kind, value, trace):
    """The hook for uncaught exceptions: the traceback begins with the program's own code."""
    while trace and trace.tb_frame.f_code.co_filename in ("<string>", "<ddp spare>"):
        trace = trace.tb_next
    sys.__excepthook__(kind, value.with_traceback(trace), trace)


def run_script(name, cwd):
    """Runs a script in the same way as the interpreter."""
    path = os.path.join(cwd, name)
    if os.path.isdir(path) or name.endswith((".zip", ".pyz")):
        runpy.run_path(path, run_name="__main__")
        return
    try:
        with open(path, "rb") as f:
            source = f.read()
    except OSError as e:
        print("%s: can't open file %r: [Errno %d] %s" % (sys.executable, path, e.errno, e.strerror), file=sys.stderr)
        sys.exit(2)
    main = sys.modules["__main__"].__dict__
    main.update(__file__=path, __cached__=None, __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    exec(compile(source, path, "exec", dont_inherit=True), main)


def become_rank(plan, order, fds, mark, room, control):
    control.detach()  # its number becomes another descriptor's
    failure = place_descriptors(order["fds"], fds)
    try:
        os.chdir(order["cwd"])
    except OSError as e:
        os.write(failure, struct.pack("ii", STAGE_WORKDIR, e.errno))
        os._exit(127)
    if order["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdout.reconfigure(line_buffering=True)
    write_mark(mark, order["mark"], room)
    set_environment(parse_environment(plan["env"]), parse_environment(order["env"]))
    words = order["argv"][order["program"]:]
    sys.argv = words
    sys.orig_argv = sys.orig_argv[:-2] + order["argv"][order["program"] - order["module"]:]  # in place of -c and its text
    sys.excepthook = hide_own_frames
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = builtins
    main.__annotations__ = {}
    os.write(failure, struct.pack("ii", STAGE_BEGUN, 0))
    os.close(failure)
    return words[0]


def wait_and_run(control):
    control.setblocking(True)
    plan, _ = receive(control)
    set_path(plan)
    import_modules(control, plan["modules"])
    mark, room = find_mark(), len(os.environ["DDP_SPAWN_ID"])
    write_mark(mark, os.environ["DDP_SPAWN_ID"], room)  # loads ctypes now
    control.send(b'{"ready": true}')
    order, fds = receive(control)
    order["old_path"] = plan.get("old_path", "")
    set_path(order)
    program = become_rank(plan, order, fds, mark, room, control)
    if order["module"]:
        runpy._run_module_as_main(program)  # as the interpreter does for -m
    else:
        run_script(program, order["cwd"])


wait_and_run(control)
