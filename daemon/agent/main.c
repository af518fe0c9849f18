#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/agent.h"
#include "daemon/agent/join.h"
#include "daemon/agent/preflight/check_process.h"
#include "daemon/agent/settings.h"
#include "daemon/agent/state_move.h"

static int failure_report(const struct err *e)
{
    fprintf(stderr, "ddp-agent: %s\n", e->msg);
    return e->code == ERR_INVALID_ARGUMENT ? 2 : 1;
}

/* root's default state directory has moved: an older agent's state may have to be moved there first. */
static enum err_code state_dir_find(struct settings *s, struct err *e)
{
    char *found;

    if (geteuid() != 0 || strcmp(s->state, STATE_DIR_ROOT) != 0)
        return ERR_OK;
    if (state_move(STATE_DIR_OLD, s->state, &found, e))
        return e->code;
    free(s->state);
    s->state = found;
    return ERR_OK;
}

int main(int argc, char **argv)
{
    CLEANUP(settings_release) struct settings settings = {0};
    struct err e;

    signal(SIGPIPE, SIG_IGN);
    log_init("ddp-agent", LOG_INFO);
    if (argc > 1 && !strcmp(argv[1], "join"))
        return agent_join(argc - 1, argv + 1, &e) ? failure_report(&e) : 0;
    if (argc > 1 && !strcmp(argv[1], "check"))
        return check_process_main(argc - 1, argv + 1);
    if (settings_read(&settings, argc, argv, &e))
        return failure_report(&e);
    if (geteuid() == 0 && !settings.user && !settings.run_as && settings.lifeline < 0) {
        fputs("ddp-agent: running as root: give the account that jobs run under with --user NAME, or with "
              "`user: NAME` in the config file "
              "(root is allowed), or give --run-as submitter to run each job as its own user\n",
              stderr);
        return 2;
    }
    settings.files = limits_raise_files(); /* each job and each log reader needs a descriptor */
    return state_dir_find(&settings, &e) || agent_run(&settings, &e) ? failure_report(&e) : 0;
}
