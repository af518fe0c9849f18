"""ddp for programs in Python: report progress, continue from the last snapshot, stop together.

    import ddp

    path = ddp.resume_path()                     # the snapshot to continue from, or None
    first = load(path) + 1 if path else 1        # load: your function; returns the snapshot's step
    for step in range(first, steps + 1):
        ...
        ddp.report(step=step, loss=loss)
        stop = ddp.should_stop(step=step)        # on every rank: True at the same step
        if (stop or step % 1000 == 0) and rank == 0:
            save("step-%d.pt" % step)            # a new name each time
            ddp.commit("step-%d.pt" % step, step=step)
        if stop:
            break

Outside of ddp these calls do nothing: report() and resume_path() return None, commit() and should_stop() return False.
submit(), wait() and metrics() run ddpctl. docs/howto/python.md describes all of them. One file, Python 3.8 or newer, no
dependencies.
"""
import errno
import fcntl
import json
import os
import select
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
import warnings

__version__ = "0.1.0"
__all__ = ["CommitError", "StaleGeneration", "commit", "metrics", "report", "resume_path", "should_stop", "submit", "wait"]


class CommitError(RuntimeError):
    """The snapshot is not committed: the job continues from an earlier one."""


class StaleGeneration(CommitError):
    """The snapshot is not committed, because the job has gone on without this process, which should end."""


# ---- progress

_REPORT_MAX = 16 << 10  # the supervisor refuses longer lines
_last_step = 0
_report_fd = None  # not looked for yet; -1: there is none
_report_lock = threading.RLock()
_report_lines = []  # of the thread that holds the lock; the first is on its way
_reporting = False


def _is_report_pipe(fd):
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
    except OSError:
        return False


def _find_report_fd():
    """The pipe from which ddp reads progress, or -1. A process of multiprocessing may have inherited no descriptors, and
    others with their numbers: it opens its parent's pipe."""
    try:
        fd = int(os.environ["DDP_REPORT_FD"])
    except (KeyError, ValueError):
        return -1
    process = sys.modules.get("multiprocessing.process")  # imported in such a process
    parent = process.parent_process() if process else None
    if parent is None:
        return fd if _is_report_pipe(fd) else -1
    try:
        fd = os.open("/proc/%d/fd/%d" % (parent.pid, fd), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if _is_report_pipe(fd):
        os.set_blocking(fd, True)
        return fd
    os.close(fd)
    return -1


def _number(value):
    """int or float of a number of any kind, such as a tensor with one element."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        value = float(value)
    return value


def report(step=None, **metrics):
    """Reports progress: `step` is an integer, every other value a number that gets a curve in `ddpctl metrics`."""
    global _report_fd, _last_step
    line = {name: _number(value) for name, value in metrics.items() if value is not None}
    if step is not None:
        line["step"] = int(step)
        _last_step = max(_last_step, line["step"])
    text = (json.dumps(line) + "\n").encode()
    if len(text) > _REPORT_MAX:
        raise ValueError("a report has at most %d bytes, not %d" % (_REPORT_MAX, len(text)))
    with _report_lock:
        if _report_fd is None:
            _report_fd = _find_report_fd()
        _report_lines.append(text)
        _flush_reports()


def _flush_reports():
    """If a signal handler interrupts this, it only adds its line, which is written after the line that is on its way."""
    global _report_fd, _reporting
    while _report_lines and not _reporting:
        _reporting = True
        try:
            while _report_lines:
                text = _report_lines[0]
                while text and _report_fd >= 0:
                    text = text[os.write(_report_fd, text):]
                _report_lines.pop(0)
        except OSError as e:
            _report_lines.clear()
            if e.errno not in (errno.EPIPE, errno.EBADF):
                raise
            _report_fd = -1  # nobody reads any more
        except BaseException:
            _report_lines.clear()
            raise
        finally:
            _reporting = False


# ---- the supervisor


class _Control:
    """The socket to the supervisor: requests go out, and its whole state comes back after each change
    (daemon/supervisor/worker_link.h). The locks can be taken again by the thread that has them: a signal handler may call
    commit() while it interrupts commit()."""

    def __init__(self, fd):
        self.socket = socket.socket(fileno=fd)
        self.lock = threading.RLock()
        self.commit_lock = threading.RLock()
        self.commits = 0
        self.closed = False
        self.state = {"commit": 0, "error": None, "stale": False, "stop": False, "allowed": 0, "stop_step": 0}

    @staticmethod
    def encode(request):
        return json.dumps(request).encode()

    def send(self, text):
        while not self.closed:
            try:
                self.socket.send(text, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                return
            except (BlockingIOError, InterruptedError):
                self._poll(select.POLLOUT)
            except OSError:
                self.closed = True

    def read(self):
        """Returns the newest state."""
        with self.lock:
            while not self.closed:
                try:
                    text = self.socket.recv(65536, socket.MSG_DONTWAIT)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError:
                    text = b""
                if not text:
                    self.closed = True
                    break
                state = json.loads(text)
                # A signal handler may have read newer state meanwhile. Older supervisors do not number it.
                if state.get("number", 0) >= self.state.get("number", 0):
                    self.state = state
            return self.state

    def wait(self):
        """Until there may be news. Not for long: another thread may read them."""
        self._poll(select.POLLIN)

    def _poll(self, events):
        poll = select.poll()
        poll.register(self.socket.fileno(), events)
        poll.poll(50)


_made = {}  # "control": the _Control, or False if there is none; "stopper": the _Stopper
_made_lock = threading.RLock()


def _make_once(name, make):
    """Creates an object once. All threads, and a signal handler that interrupts the creation, get the same one."""
    if name not in _made:
        with _made_lock:
            if name not in _made:
                _made.setdefault(name, make())  # keeps one that a signal handler has made and used meanwhile
    return _made[name]


def _is_control_socket(fd):
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    peer = socket.socket(fileno=os.dup(fd))
    with peer:
        return peer.family == socket.AF_UNIX and peer.type == socket.SOCK_SEQPACKET


def _find_control():
    if "DDP_CONTROL_FD" not in os.environ:
        return False
    try:
        fd = int(os.environ["DDP_CONTROL_FD"])
        if _is_control_socket(fd):
            os.set_inheritable(fd, False)
            return _Control(os.dup(fd))  # if _make_once drops this object, it closes only the copy
    except (ValueError, OSError):
        pass
    warnings.warn("ddp: this process has not inherited DDP_CONTROL_FD: commit() and should_stop() work only in the process "
                  "that ddp has started, and do nothing here", RuntimeWarning, stacklevel=5)
    return False


def _get_control():
    return _make_once("control", _find_control)


def _forget_control():
    """In a forked child, such as a worker of a DataLoader: the conversation belongs to the parent."""
    global _made, _report_lock, _reporting
    _made = {"control": False}  # so the child does not take _made_lock, which another thread may have held at the fork
    _reporting = False
    _report_lines.clear()
    _report_lock = threading.RLock()


# ---- snapshots


def resume_path(default=None):
    """Returns the path that the last commit of this job named, which is the same on all ranks. If there is no commit, returns
    `default` if this file exists here, else None. After `ddpctl restart --from-scratch` and until the next commit, returns
    None. The result does not change while the process runs."""
    path = os.environ.get("DDP_RESUME_PATH")
    if not path:
        own = default is not None and "DDP_FROM_SCRATCH" not in os.environ and os.path.exists(default)
        return default if own else None
    if not os.path.exists(path):
        raise FileNotFoundError(
            errno.ENOENT, "job %s continues from this snapshot, but %s does not have it: snapshots must be in a directory that "
            "all nodes of the job see; `ddpctl restart --from-scratch %s` starts without it"
            % (os.environ.get("DDP_JOB_ID", "?"), os.environ.get("DDP_NODE", "this node"),
               os.environ.get("DDP_JOB_ID", "JOB")), path)
    return path


def _sync(path, directory=False):
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECTORY if directory else 0))
    try:
        os.fsync(fd)
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def _sync_tree(path):
    """Makes the file, or all of the directory, durable. Returns the number of bytes of its files."""
    total = 0
    if os.path.isdir(path):
        for folder, _, files in os.walk(path):
            total += sum(_sync(os.path.join(folder, name)) for name in files)
            _sync(folder, directory=True)
    else:
        total = _sync(path)
    _sync(os.path.dirname(path), directory=True)
    return total


def _check_step(name, step):
    if not 0 <= step < 2 ** 63:
        raise ValueError("%s: a step is a number from 0 to 2**63 - 1, not %d" % (name, step))


def commit(path, step=None):
    """From now on the job continues from `path`, a file or a directory that is complete. One rank commits for all, when
    all have written their parts. Returns when the files and the commit are durable: True; False outside of ddp.
    `step` is by default the last one that this process has reported. Raises StaleGeneration if the job has gone on
    without this process."""
    path = os.path.abspath(os.fsdecode(path))
    path.encode()  # UnicodeEncodeError: the coordinator keeps texts, not bytes
    step = _last_step if step is None else int(step)
    _check_step("commit", step)
    control = _get_control()
    if not control:
        return False
    size = _sync_tree(path)
    with control.commit_lock:
        control.commits += 1
        number = control.commits
        text = control.encode({"op": "commit", "id": number, "path": path, "step": step, "bytes": size})
        # If a signal handler has made another commit meanwhile, that is the newer one, and its result is returned here, too.
        if control.commits == number:
            control.send(text)
        while True:
            state = control.read()
            if state["commit"] >= number:
                break
            if control.closed:
                raise CommitError("%s: the supervisor of this process has ended, or could not read the commit" % path)
            control.wait()
    if state["error"]:
        raise (StaleGeneration if state["stale"] else CommitError)("%s: %s" % (path, state["error"]))
    return True


# ---- the common stop

_AHEAD_S = 0.25  # a rank promises not to pass the step that it will reach in this time


class _Stopper:
    """One rank's side of the agreement on a step (daemon/coordinator/core/worker_asks.c)."""

    def __init__(self, control):
        self.control = control
        self.calls = 0
        self.counts = None  # whether the program leaves the counting to us
        self.last = None    # (time, step) of the last call
        self.pace = 0.0     # seconds from one step to the next
        self.promise = 0
        self.first = 0      # the first promise: until then no answer is needed
        control.send(control.encode({"op": "heed"}))

    def step_of(self, step):
        if self.counts is None:
            self.counts = step is None
        elif self.counts != (step is None):
            raise ValueError("should_stop: pass the step at each call, or at none")
        self.calls += 1
        return self.calls - 1 if step is None else int(step)

    def note_pace(self, step):
        now = time.monotonic()
        if self.last is not None and step > self.last[1]:
            each = (now - self.last[0]) / (step - self.last[1])
            self.pace = each if self.pace == 0 else 0.8 * self.pace + 0.2 * each
        self.last = (now, step)

    def renew(self, step):
        """Promises to pass no step from the promise on without an answer."""
        ahead = int(_AHEAD_S / self.pace) if self.pace > 0 else 1
        self.promise = max(self.promise, min(step + min(max(ahead, 1), 10000), 2 ** 63 - 1))
        self.control.send(self.control.encode({"op": "promise", "step": self.promise}))

    def ask(self, step):
        state = self.control.read()
        self.note_pace(step)
        if not state["stop"]:
            return False
        if not self.first:
            self.renew(step)
            self.first = self.promise
        while not state["stop_step"] and step >= max(self.first, state["allowed"]):
            if self.control.closed:
                return True  # without its supervisor this process is about to be killed
            if self.promise <= step:
                self.renew(step)
            self.control.wait()
            state = self.control.read()
        return bool(state["stop_step"]) and step >= state["stop_step"]


def should_stop(step=None):
    """Whether the job is to stop: somebody cancels it or drains its node, or its time is over. All ranks call it, with
    the number of the step that they have completed, and all get True at the same step. Then save, commit and end with
    exit code 0. A rank never waits for another one here."""
    global _last_step
    if step is not None:
        _last_step = max(_last_step, int(step))
    control = _get_control()
    if not control:
        return False
    stopper = _make_once("stopper", lambda: _Stopper(control))
    step = stopper.step_of(step)
    _check_step("should_stop", step)
    return stopper.ask(step)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_control)


# ---- jobs


def _ddpctl(*arguments, check=True):
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bin", "ddpctl")
    program = shutil.which("ddpctl") or (beside if os.access(beside, os.X_OK) else "ddpctl")
    done = subprocess.run([program, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)
    if check and done.returncode:
        raise RuntimeError(done.stderr.strip() or "ddpctl %s: exit code %d" % (arguments[0], done.returncode))
    return done


def submit(*arguments):
    """Submits a job, with the arguments of `ddpctl submit`, and returns its number: submit("train.yaml"),
    submit("--nodes", 2, "--", "python3", "train.py")."""
    return json.loads(_ddpctl("submit", "-o", "json", *arguments).stdout)["job"]


def wait(job):
    """Waits until the job has ended, and returns its exit code."""
    _ddpctl("status", job)  # says why, if there is no such job
    return _ddpctl("wait", job, check=False).returncode


def metrics(job, name=None):
    """What the job has reported: a list of dictionaries with step, time_ms, name, value and rank."""
    return json.loads(_ddpctl("metrics", job, *(["--name", name] if name else []), "-o", "json").stdout)["points"]


# ---- another module of this name


def _step_aside():
    """ddp puts this file's directory on PYTHONPATH, before site-packages. A module named ddp that the user has installed
    must not be hidden by it."""
    import importlib.machinery
    import importlib.util
    here = os.path.dirname(os.path.realpath(__file__))
    places = [os.path.realpath(place) for place in sys.path]
    if here not in places:
        return
    behind = [place for place in places[places.index(here) + 1:] if place != here]  # it may be there twice
    spec = importlib.machinery.PathFinder.find_spec("ddp", behind)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["ddp"] = module
    spec.loader.exec_module(module)


if __name__ == "ddp":
    _step_aside()
