#ifndef DDP_BASE_CONF_OPTION_H
#define DDP_BASE_CONF_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/conf/conf.h"
#include "base/err.h"

/* Command-line options by const tables: one row is one option, and gives its flag, its key in a YAML file, its
 * checks and its line of --help. Accepted forms: `--name value`, `--name=value`, `-r value`, `-r3`, and `_` for
 * `-` in a name. Options and arguments may be mixed; `--` ends both, and what follows it is the tail (a
 * COMMAND). Errors are INVALID_ARGUMENT with a whole message:
 *   unknown option '--nodse', did you mean '--nodes'?
 *   invalid value for option '--slots': expected a number from 1 to 4096, got 'abc' */
enum option_type {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char *, borrowed from argv */
    OPTION_COPY,   /* char *, owned; the text that was there is freed */
    OPTION_TEXTS,  /* char **, a strv of copies; the first use on a command line replaces the list */
    OPTION_INT,    /* int64_t, min..max */
    OPTION_REAL,   /* double, min..max */
    OPTION_CHOICE, /* const char *: one of `value`, "table|json" */
    OPTION_FD,     /* int: the number of a file descriptor */
    OPTION_PARSED, /* the type that `parse` writes */
};

struct option_spec {
    const char *name; /* "nodes"; NULL ends a table */
    const char *key;  /* in the YAML file; NULL: not in the file */
    char letter;      /* or 0 */
    enum option_type type;
    size_t offset;                             /* of the value, in the struct that the table fills */
    const char *value;                         /* what --help calls the value: "N"; choices: "table|json" */
    const char *help;                          /* for --help, which breaks its lines */
    const char *default_text;                  /* for --help: the default; NULL: --help shows none */
    bool hidden;                               /* an alias that --help leaves out */
    bool whole;                                /* never abbreviated: programs write this option, not people */
    double min, max;                           /* both 0: 0 or more; max INFINITY: no upper end */
    bool (*parse)(const char *text, void *at); /* OPTION_PARSED: false if the text is wrong */
    bool (*check)(const char *text); /* of a text: false if a text of the command line is invalid; or NULL */
    const char *expected;            /* by parse and check, for messages: "a range such as 1-9" */
    /* The row of the key, if the file has another form than the command line (a list). */
    enum err_code (*from_node)(const struct conf_node *node, void *at, struct err *e);
    /* OPTION_TEXT whose value may be left out: the next argument is the value only if `fits` accepts it, else
     * the value is `otherwise`. NULL: the value is required. */
    bool (*fits)(const char *text);
    const char *otherwise;
};

struct option_set { /* a table and the struct it fills */
    const struct option_spec *table;
    void *base;
};

struct option_arguments { /* the arguments that are not options */
    char **list;          /* owned array of `count` borrowed texts */
    size_t count;
    char **tail; /* borrowed, NULL-terminated; NULL: there is no tail */
    bool dashes; /* "--" began the tail */
};

struct option_rules {
    bool (*ends)(
        const char *argument); /* the argument begins the tail, as if "--" stood before it; or NULL */
    /* The beginning of a name stands for the option, as in Python's argparse: --nproc for --nproc-per-node.
     * If it begins the names of several options, the error lists them. A whole name is never ambiguous. */
    bool abbreviations;
    bool numbers; /* "-2" is an argument */
    /* What to say of an unknown option that has another name here: gets "-N" or "--ntasks"; NULL if nothing. */
    const char *(*foreign)(const char *option, const void *context);
    const void *context;
};

/* sets ends with a NULL table. argv[0] is skipped. rules: NULL for the standard ones. On failure some values
 * are set, and args must be released too. */
MUST_CHECK enum err_code option_parse(const struct option_set *sets, int argc, char **argv,
                                      const struct option_rules *rules, struct option_arguments *args,
                                      struct err *e);
/* Gives each option that the command line left out the value of its variable in `env` ("NAME=value" list):
 * prefix, then the name in capitals, `_` for `-`. A flag is on when its variable is neither "" nor "0". */
MUST_CHECK enum err_code option_environment(const struct option_spec *table, void *base, const char *prefix,
                                            char *const *env, struct err *e);
void option_arguments_release(struct option_arguments *args);
void option_release(const struct option_spec *table, void *base); /* frees its OPTION_COPY and OPTION_TEXTS */
void option_help(const struct option_spec *table, struct buf *out);
/* The rows that have a key, as a table for conf_read into the same struct, followed by the rows of `more` (or
 * NULL). Heap-owned. */
struct conf_field *option_conf_fields(const struct option_spec *table, const struct conf_field *more);
/* INVALID_ARGUMENT, "invalid value for option '--NAME': expected EXPECTED, got 'TEXT'". */
enum err_code option_refuse(const char *name, const char *expected, const char *text, struct err *e);

#endif
