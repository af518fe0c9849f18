#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/agent.h"
#include "daemon/agent/check.h"

static int fail(const struct err *e)
{
    fprintf(stderr, "ddp-agent: %s\n", e->msg);
    return e->code == ERR_INVALID_ARGUMENT ? 2 : 1;
}

int main(int argc, char **argv)
{
    CLEANUP(settings_release) struct settings settings = {0};
    struct err e;

    signal(SIGPIPE, SIG_IGN);
    log_init("ddp-agent", LOG_INFO);
    if (argc > 2 && !strcmp(argv[1], "join") && !strcmp(argv[2], "--help"))
        argv[1] = argv[2];
    if (argc > 1 && !strcmp(argv[1], "join"))
        return settings_join(argc - 1, argv + 1, &e) ? fail(&e) : 0;
    if (argc > 1 && !strcmp(argv[1], "check"))
        return check_main(argc - 1, argv + 1);
    if (settings_read(&settings, argc, argv, &e))
        return fail(&e);
    if (geteuid() == 0 && !settings.user && settings.lifeline < 0) {
        fputs("ddp-agent: running as root, say whom jobs run as: --user NAME, or `user: NAME` in the config "
              "file "
              "(root may be named)\n",
              stderr);
        return 2;
    }
    return agent_run(&settings, &e) ? fail(&e) : 0;
}
