#ifndef DDP_CLIENT_CMD_COMMAND_H
#define DDP_CLIENT_CMD_COMMAND_H

#include "base/conf/option.h"
#include "client/cmd/output.h"

/* A command is one const entry in a file cmd_NAME.c, declared at the end of this file, and a row of the table in
 * main.c. Commands that make the same call share a file: drain, undrain and forget cmd_nodes.c, restart cmd_resize.c, the order in the queue cmd_order.c. */

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 3, /* the coordinator */
    EXIT_DDP = 125,       /* run, wait, --follow: ddp itself failed, not the job's command */
};

/* Options that every command takes. */
struct globals {
    const char *coordinator, *token_file, *config;
    const char *tls_ca, *tls_cert, *tls_key;
    bool insecure, help;
};

struct invocation {
    struct globals *globals;
    void *options; /* the command's own struct */
    struct option_arguments args;
    char *const *argv; /* every word after the command, as typed */
};

struct command {
    const char *name;
    const char *usage;   /* one line or more, each without "ddpctl " */
    const char *summary; /* one line for ddpctl --help */
    const char *help;    /* paragraphs for ddpctl NAME --help */
    const struct option_spec *options;
    const struct option_spec *shared; /* a second table that fills the same struct, or NULL */
    size_t size;                      /* of the options struct, which is zeroed first */
    size_t least, most;               /* number of arguments */
    bool tail;                        /* takes "-- COMMAND" */
    struct option_rules rules;        /* ends: true if the argument begins COMMAND without "--" */
    bool offline;                     /* talks to no coordinator: the global options are not shown */
    int (*run)(struct invocation *in);
};

extern const struct command cmd_submit, cmd_run, cmd_status, cmd_logs, cmd_wait, cmd_cancel, cmd_resize,
    cmd_restart, cmd_tune, cmd_resume, cmd_metrics, cmd_export, cmd_events, cmd_nodes, cmd_drain, cmd_undrain,
    cmd_forget, cmd_version, cmd_priority, cmd_hold, cmd_release, cmd_delete, cmd_show, cmd_verify,
    cmd_generate, cmd_why, cmd_check, cmd_bench, cmd_web, cmd_whoami, cmd_audit, cmd_tell, cmd_top, cmd_plan;
extern const struct command *const commands[]; /* ended by NULL */
const struct command *command_find(const char *name);

#define JOBS_MOST 100000 /* arguments of a command that takes several jobs */

#define OPTION_OUTPUT(owner, member)                                                                         \
    {                                                                                                        \
        .name = "output", .letter = 'o', .type = OPTION_CHOICE, .offset = offsetof(struct owner, member),    \
        .value = "table|json", .help = "output format", .default_text = "table"                              \
    }

#endif
