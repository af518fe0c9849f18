#ifndef DDP_BASE_PROGRAM_H
#define DDP_BASE_PROGRAM_H

#include "base/option.h"

/* The command line of a program that has no commands of its own kind: the daemons and the trainer. Adds
 * --help, -h and --version to the program's options. For main, before there are threads. */
struct program {
    const char *name;  /* "ddp-agent"; for a command of it, "ddp-agent join" */
    const char *usage; /* one line or more, each without "usage:" */
    const char *help;  /* paragraphs between the usage and the options */
    const char *more;  /* paragraphs behind the options, or NULL */
};

/* Parses argv. Where the command line ends the program it prints what there is to say (--help and --version to
 * stdout, a misuse to stderr) and returns the exit code, 0 or 2. Else it returns -1: go on. */
int program_parse(const struct program *p, const struct option_set *sets, int argc, char **argv,
                  struct option_arguments *args);
/* A misuse that the table cannot see: prints the message, returns exit code 2. */
int program_misused(const struct program *p, const char *message);

#endif
