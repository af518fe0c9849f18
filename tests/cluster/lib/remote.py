"""Stand-ins for programs that start other programs on other hosts: `ssh` and `pbsdsh` as programs on PATH that enter the host's network
namespace. Like the real ones they pass on nothing of the caller's environment (pbsdsh: the job's PBS_* variables), start in another
directory, and leave the programs that they started running when they are killed."""
import os
import shlex

from lib.cluster import BIN

SSH = """#!/bin/bash
# stands for ssh [-x] [-o OPTION]... HOST COMMAND
while [[ $1 == -* ]]; do [[ $1 == -o ]] && shift; shift; done
echo "$*" >>%(log)s
host=$1
shift
case ${host#*@} in
%(cases)s
*) echo "ssh: Could not resolve hostname $host" >&2; exit 255 ;;
esac
cd /
setsid env -i %(env)s "${enter[@]}" sh -c "$*" <&0 &
wait $!
"""

PBSDSH = """#!/bin/bash
# stands for pbsdsh [-n INDEX] [--] COMMAND ARGUMENT...; without -n once for each line of PBS_NODEFILE
mapfile -t hosts <"$PBS_NODEFILE"
indices=("${!hosts[@]}")
[[ $1 == -n ]] && indices=("$2") && shift 2
[[ $1 == -- ]] && shift
echo "$*" >>%(log)s
code=0 pids=()
for index in "${indices[@]}"; do
    case ${hosts[index]} in
%(cases)s
    esac
    cd /
    setsid env -i %(env)s PBS_NODEFILE="$PBS_NODEFILE" PBS_JOBID="$PBS_JOBID" PBS_TASKNUM=$((index + 2)) \\
        "${enter[@]}" "$@" </dev/null &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || code=$?
done
exit $code
"""


def stand_ins(meeting):
    """Puts both stand-ins on the PATH of the meeting's commands. Returns the file in which they record their arguments."""
    bin_dir = os.path.join(meeting.dir, "bin")
    log = os.path.join(meeting.dir, "told")
    os.mkdir(bin_dir)
    cases = ""
    for name in meeting.network.space:
        enter = meeting.network.enter(name) + ["sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', meeting.names[name]]
        cases += "%s) enter=(%s) ;;\n" % (name, " ".join(map(shlex.quote, enter)))
    keep = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": meeting.dir, "TMPDIR": meeting.env["TMPDIR"],
            "DDP_TEST_ID": meeting.id}
    env = " ".join("%s=%s" % (name, shlex.quote(value)) for name, value in keep.items())
    for name, text in (("ssh", SSH), ("pbsdsh", PBSDSH)):
        path = os.path.join(bin_dir, name)
        with open(path, "w") as f:
            f.write(text % {"cases": cases, "env": env, "log": shlex.quote(log)})
        os.chmod(path, 0o755)
    meeting.env["PATH"] = bin_dir + ":" + BIN + ":" + meeting.env["PATH"]
    return log
