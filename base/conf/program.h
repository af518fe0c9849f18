#ifndef DDP_BASE_CONF_PROGRAM_H
#define DDP_BASE_CONF_PROGRAM_H

#include "base/conf/option.h"

/* The command line of the daemons and the trainer (ddpctl has its own). Adds --help, -h and --version to the
 * program's options. For main, before other threads start. */
struct program {
    const char *name;  /* "ddp-agent", or with a command "ddp-agent join" */
    const char *usage; /* one line or more, each without "usage:" */
    const char *help;  /* paragraphs between the usage and the options */
    const char *more;  /* paragraphs behind the options, or NULL */
};

/* Parses argv. Returns -1 if the program should continue. Otherwise prints --help or --version to stdout, or an
 * error to stderr, and returns the exit code: 0 or 2. */
int program_parse(const struct program *p, const struct option_set *sets, int argc, char **argv,
                  struct option_arguments *args);
/* For an error that the table cannot detect: prints the message and returns exit code 2. */
int program_misused(const struct program *p, const char *message);

#endif
