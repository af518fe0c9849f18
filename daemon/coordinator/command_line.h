#ifndef DDP_DAEMON_COORDINATOR_COMMAND_LINE_H
#define DDP_DAEMON_COORDINATOR_COMMAND_LINE_H

#include <stdbool.h>

#include "base/conf/program.h"
#include "daemon/coordinator/config.h"

/* The command line of ddp-coordinator. For main, before there are threads. */

struct command_line {
    struct config given;          /* the keys of coordinator.yaml that were given as options; others are 0 */
    const char *config_file;      /* --config; NULL: not given */
    const char *role;             /* --role; NULL: not given */
    bool agent, accept_loss;      /* --agent, --accept-loss */
    int lifeline;                 /* --lifeline; -1: not given */
    struct option_arguments args; /* the command and its arguments; none: serve */
};

/* Parses and checks argv. Ends the program after --help and --version (exit code 0), and on wrong usage
 * (2). */
void command_line_read(struct command_line *l, int argc, char **argv);
void command_line_release(struct command_line *l);

bool command_is(const struct command_line *l, const char *name);

#endif
