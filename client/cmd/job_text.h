#ifndef DDP_CLIENT_CMD_JOB_TEXT_H
#define DDP_CLIENT_CMD_JOB_TEXT_H

#include "base/job/job.h"
#include "base/option.h"

/* From what the user gave to the YAML text that is submitted: checked, with absolute paths. */

/* Flags that describe a job without a file, or change one. */
struct job_flags {
    const char *name, *nodes, *procs, *gpus, *device, *workdir, *time_limit;
    const char *max_restarts, *priority;
    const char *role, *run_id, *grace; /* of run alone */
    bool virtual_local_rank;
    char **set; /* "train.epochs=20" */
    char **env; /* "NAME=value" */
    bool standalone;
};
extern const struct option_spec job_flag_options[]; /* into a struct that begins with struct job_flags */

/* The file's text with every flag and --set applied. INVALID_ARGUMENT names file, line and column. */
MUST_CHECK enum err_code job_text_from_file(const char *path, const struct job_flags *flags, char **text,
                                            struct err *e);
/* A command job. */
MUST_CHECK enum err_code job_text_from_command(char *const *command, const struct job_flags *flags,
                                               char **text, struct err *e);
/* A stored job file's text with --set applied (paths are absolute already). */
MUST_CHECK enum err_code job_text_change(const char *stored, const struct job_flags *flags, char **text,
                                         struct err *e);

/* Paths of the job that are not on this machine, one warning each; the nodes may have them. */
char **job_text_missing(const char *text);

/* What a submitter's environment gives to a command job: PATH, VIRTUAL_ENV and the like, WANDB_*; exports
 * adds names, ALL everything but the terminal's own, NONE nothing. NULL-terminated "NAME=value" list;
 * strv_free. */
MUST_CHECK enum err_code job_text_environment(char *const *environment, char *const *exports, char ***out,
                                              struct err *e);

#endif
