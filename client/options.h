#ifndef DDP_CLIENT_OPTIONS_H
#define DDP_CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Command-line options by const tables. `--name value`, `--name=value`, `-r value`, `-r3`; options and
 * arguments may be mixed; `--` ends them, and what follows is the tail (a COMMAND). Messages are whole:
 * "unknown option '--nodse', did you mean '--nodes'?". */
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
};

struct option_set { /* a table and the struct it fills */
    const struct option_spec *table;
    void *base;
};

struct arguments {
    char **list; /* owned array of borrowed texts, count of them */
    size_t count;
    char **tail; /* borrowed, NULL-terminated; NULL: there was no "--" */
};

/* sets ends with a NULL table. argv[0] is the command's name. INVALID_ARGUMENT on misuse. */
MUST_CHECK enum err_code options_parse(const struct option_set *sets, int argc, char **argv,
                                       struct arguments *args, struct err *e);
void arguments_release(struct arguments *args);
void options_release(const struct option_spec *table, void *base);   /* frees its OPTION_TEXTS */
void options_help(const struct option_spec *table, struct buf *out); /* one aligned line an option */

/* The nearest of the names, when it is near enough to be meant; else NULL. */
const char *nearest(const char *word, const char *const *names, size_t count);

#endif
