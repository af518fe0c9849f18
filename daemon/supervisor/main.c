#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf/program.h"
#include "base/limits.h"
#include "base/log.h"
#include "daemon/capture/capture.h"
#include "daemon/supervisor/group.h"

struct supervisor_options {
    const char *dir, *node;
    int64_t job;
    int control_fd, terminal;
    rlim_t open_files;
    bool attached;
};

/* "18446744073709551615" is RLIM_INFINITY, which OPTION_INT cannot hold. */
static bool parse_limit(const char *text, void *at)
{
    char *end;
    errno = 0;
    *(rlim_t *)at = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && !errno;
}

#define AT(member) .offset = offsetof(struct supervisor_options, member)
static const struct option_spec options[] = {
    {.name = "dir",
     .type = OPTION_TEXT,
     AT(dir),
     .value = "DIR",
     .help = "lock, control socket and exit records of this job on this node"},
    {.name = "job",
     .type = OPTION_INT,
     AT(job),
     .value = "N",
     .min = 1,
     .max = INFINITY,
     .help = "job number"},
    {.name = "node",
     .type = OPTION_TEXT,
     AT(node),
     .value = "NAME",
     .help = "name of this node, for messages"},
    {.name = "control-fd",
     .type = OPTION_FD,
     AT(control_fd),
     .value = "FD",
     .help = "a control connection that is open already"},
    {.name = "open-files",
     .type = OPTION_PARSED,
     AT(open_files),
     .value = "N",
     .parse = parse_limit,
     .expected = "a number",
     .help = "soft limit of open files for the workers (ulimit -n)",
     .default_text = "its own"},
    {.name = "attached",
     .type = OPTION_FLAG,
     AT(attached),
     .help = "kill all workers when the control connection closes (ddpctl run)"},
    {.name = "terminal",
     .type = OPTION_FD,
     AT(terminal),
     .value = "FD",
     .help = "a socket to the user's terminal, for the rank in the foreground (ddpctl run)"},
    {0},
};

static const struct program program = {
    .name = "ddp-supervisor",
    .usage = "ddp-supervisor --dir DIR --job N --node NAME [OPTIONS]",
    .help = "The parent of a job's workers on one node. ddp-agent starts it.\n"
            "It outlives the agent: a new agent finds it by DIR/control.sock.",
};

/* Ends the program on --help, --version and misuse. */
static struct group_options options_read(int argc, char **argv)
{
    struct supervisor_options o = {.control_fd = -1, .terminal = -1};
    struct option_arguments args;
    int code = program_parse(&program, (struct option_set[]){{options, &o}, {0}}, argc, argv, &args);

    if (code < 0 && (args.count || args.tail))
        code = program_misused(&program, "takes options only");
    if (code < 0 && (!o.dir || !o.node || !o.job))
        code = program_misused(&program, "--dir, --job and --node are required");
    if (code < 0 && o.attached && o.control_fd < 0)
        code = program_misused(&program, "--attached needs --control-fd");
    option_arguments_release(&args);
    if (code >= 0)
        exit(code);
    return (struct group_options){.dir = o.dir,
                                  .node = o.node,
                                  .job = o.job,
                                  .files = o.open_files,
                                  .control_fd = o.control_fd,
                                  .attached = o.attached,
                                  .terminal_fd = o.terminal};
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], CAPTURE_WORD))
        return capture_main(argc - 2, argv + 2);
    struct group_options o = options_read(argc, argv);
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
