#ifndef DDP_CLIENT_OPTIONS_H
#define DDP_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Command-line options by const tables. `--name value`, `--name=value`, `-r value`, `-r3`, and `_` in a name
 * for `-`; options and arguments may be mixed; `--` ends them, and what follows is the tail (a COMMAND).
 * Messages are whole: "unknown option '--nodse', did you mean '--nodes'?". */
enum option_type {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char *, from argv */
    OPTION_INT,    /* int64_t, 0 or more */
    OPTION_TEXTS,  /* char **, grows with each use: strv of copies */
    OPTION_CHOICE, /* const char *: one of `value`, "table|json" */
};

struct option_spec {
    const char *name; /* "nodes"; NULL ends a table */
    char letter;      /* or 0 */
    enum option_type type;
    size_t offset;     /* into the command's own struct */
    const char *value; /* what --help calls the value: "N"; choices: "table|json" */
    const char *help;
    bool hidden; /* an alias that --help leaves out */
    /* OPTION_TEXT whose value may be left out: a next argument that this refuses is none, and the value then
     * is `otherwise`. NULL: there must be one. */
    bool (*fits)(const char *text);
    const char *otherwise;
};

struct option_set { /* a table and the struct it fills */
    const struct option_spec *table;
    void *base;
};

struct arguments {
    char **list; /* owned array of borrowed texts, count of them */
    size_t count;
    char **tail; /* borrowed, NULL-terminated; NULL: there is none */
};

/* sets ends with a NULL table. argv[0] is the command's name. ends: which arguments begin the tail as if "--"
 * stood before them; NULL: none. INVALID_ARGUMENT on misuse. */
MUST_CHECK enum err_code options_parse(const struct option_set *sets, int argc, char **argv,
                                       bool (*ends)(const char *argument), struct arguments *args,
                                       struct err *e);
/* Gives each option that the command line left out the value of its variable in `env` ("NAME=value" list):
 * prefix, then the name in capitals, `_` for `-`. A flag is on when that is neither "" nor "0". */
MUST_CHECK enum err_code options_environment(const struct option_spec *table, void *base, const char *prefix,
                                             char *const *env, struct err *e);
void arguments_release(struct arguments *args);
void options_release(const struct option_spec *table, void *base);   /* frees its OPTION_TEXTS */
void options_help(const struct option_spec *table, struct buf *out); /* one aligned line an option */

/* The nearest of the names, when it is near enough to be meant; else NULL. */
const char *nearest(const char *word, const char *const *names, size_t count);

#endif
