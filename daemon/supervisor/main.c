#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/group.h"

static const char help[] =
    "usage: ddp-supervisor --dir DIR --job N --node NAME [--control-fd FD] [--open-files N]\n"
    "       [--attached]\n"
    "\n"
    "The parent of a job's workers on one node. ddp-agent starts it; nobody else needs to.\n"
    "It outlives the agent: a new one finds it by DIR/control.sock.\n"
    "\n"
    "  --dir DIR        lock, control socket and exit records of this job on this node\n"
    "  --job N          the job's number\n"
    "  --node NAME      this node's name, for messages\n"
    "  --control-fd FD  a control connection that is open already\n"
    "  --open-files N   soft limit of open files for the workers (ulimit -n); default: its own\n"
    "  --attached       kill everything when that connection closes (ddpctl run)\n"
    "  --version        print the version\n";

static const struct option options[] = {
    {"dir", required_argument, NULL, 'd'},
    {"job", required_argument, NULL, 'j'},
    {"node", required_argument, NULL, 'n'},
    {"control-fd", required_argument, NULL, 'c'},
    {"open-files", required_argument, NULL, 'o'},
    {"attached", no_argument, NULL, 'a'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

static _Noreturn void leave(FILE *to, const char *text, int code)
{
    fputs(text, to);
    exit(code);
}

static struct group_options read_options(int argc, char **argv)
{
    struct group_options o = {.control_fd = -1};
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 'd':
            o.dir = optarg;
            break;
        case 'j':
            o.job = strtoll(optarg, NULL, 10);
            break;
        case 'n':
            o.node = optarg;
            break;
        case 'c':
            o.control_fd = atoi(optarg);
            break;
        case 'o':
            o.files = strtoull(optarg, NULL, 10);
            break;
        case 'a':
            o.attached = true;
            break;
        case 'h':
            leave(stdout, help, 0);
        case 'v':
            leave(stdout, "ddp-supervisor " DDP_VERSION "\n", 0);
        default:
            leave(stderr, "ddp-supervisor: try --help\n", 2);
        }
    }
    if (!o.dir || !o.node || o.job <= 0 || optind != argc || (o.attached && o.control_fd < 0))
        leave(stderr, help, 2);
    return o;
}

int main(int argc, char **argv)
{
    struct group_options o = read_options(argc, argv);
    struct group *g;
    rlim_t before;
    struct err e;

    log_init("ddp-supervisor", LOG_INFO);
    before = limits_raise_files();
    if (!o.files)
        o.files = before;
    if (getsid(0) != getpid() && setsid() < 0)
        log_warn("no_session", "why=leader-of-a-group");
    if (group_open(&g, &o, &e)) {
        log_error("supervisor_failed", "job=%" PRId64 " why=%s", o.job, LOG_Q(e.msg));
        return 1;
    }
    group_run(g);
    group_free(g);
    return 0;
}
