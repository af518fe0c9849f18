#include <stdlib.h>
#include <sys/prctl.h>

#include "base/conf/program.h"
#include "base/limits.h"
#include "base/log.h"
#include "daemon/tcpstore/server.h"

#define LINGER_MS 300000 /* as long as torchrun's agents wait for each other at the end */

struct store_options {
    int listener, owner;
};

#define AT(member) .offset = offsetof(struct store_options, member)
static const struct option_spec options[] = {
    {.name = "listener", .type = OPTION_FD, AT(listener), .value = "FD", .help = "a listening socket"},
    {.name = "owner",
     .type = OPTION_FD,
     AT(owner),
     .value = "FD",
     .help = "a pipe that closes when the workers of this machine have ended"},
    {0},
};

static const struct program program = {
    .name = "ddp-store",
    .usage = "ddp-store --listener FD [--owner FD]",
    .help = "Serves PyTorch's TCPStore to the workers of one generation. ddp-supervisor starts it\n"
            "on the node of rank 0 if the job says `store: launcher`.",
};

int main(int argc, char **argv)
{
    struct store_options o = {-1, -1};
    struct option_arguments args;
    struct err e;
    int code = program_parse(&program, (struct option_set[]){{options, &o}, {0}}, argc, argv, &args);

    if (code < 0 && (args.count || args.tail))
        code = program_misused(&program, "takes options only");
    if (code < 0 && o.listener < 0)
        code = program_misused(&program, "--listener is required");
    option_arguments_release(&args);
    if (code >= 0)
        return code;
    /* Other processes of the job's account may not trace it. */
    prctl(PR_SET_DUMPABLE, 0);
    log_init("ddp-store", LOG_INFO);
    limits_raise_files();
    if (tcpstore_serve(
            &(struct tcpstore_options){.listener = o.listener, .owner = o.owner, .linger_ms = LINGER_MS},
            &e)) {
        log_error("store_failed", "why=%s", LOG_Q(e.msg));
        return 1;
    }
    return 0;
}
