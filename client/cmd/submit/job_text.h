#ifndef DDP_CLIENT_CMD_SUBMIT_JOB_TEXT_H
#define DDP_CLIENT_CMD_SUBMIT_JOB_TEXT_H

#include "base/conf/option.h"
#include "base/job/job.h"

/* Makes the text of the job file that is submitted, from a file or a command and the flags of the command
 * line. The text is checked, and its paths are absolute. Any thread; results are owned by the caller. */

/* Flags that describe a job without a file, or that override keys of a file. */
struct job_flags {
    const char *name, *nodes, *procs, *gpus, *device, *workdir, *time_limit;
    const char *max_restarts, *restart_on, *priority, *store, *preload, *tell, *tell_as;
    const char *role, *run_id, *grace; /* of `ddpctl run` only */
    bool virtual_local_rank;
    char **set; /* "train.epochs=20" */
    char **env; /* "NAME=value" */
    bool standalone;
    bool from_afar; /* the caller has no directory here: `workdir` must be an absolute path */
};
extern const struct option_spec job_flag_options[]; /* for a struct that begins with struct job_flags */

/* The text of the file with every flag and --set applied. INVALID_ARGUMENT: the message names file, line and
 * column, and shows the line. If the file has several errors, it is that of the last one, and `others` gets the messages
 * of those before it, each with "ddpctl: " in front, by lines. */
MUST_CHECK enum err_code job_text_from_file(const char *path, const struct job_flags *flags, char **text,
                                            struct buf *others, struct err *e);
/* The same for a text that came without a file. `name`: of the job, if neither the text nor a flag has one. */
MUST_CHECK enum err_code job_text_from_memory(const char *yaml, size_t size, const struct job_flags *flags,
                                              const char *name, char **text, struct err *e);
/* The value of the key `store` for a command line: that of the flag; without the flag `launcher` for the form in which
 * torchrun is typed, a Python script or module with a number of workers, and else NULL. A program without that number
 * is one process, which may start ranks of its own and serve their store. */
const char *job_text_store(const struct job_flags *flags, bool python);
/* The text of a job that runs the command. */
MUST_CHECK enum err_code job_text_from_command(char *const *command, const struct job_flags *flags,
                                               char **text, struct err *e);
/* The text of a stored job, whose paths are absolute already, with --set applied. */
MUST_CHECK enum err_code job_text_change(const char *stored, const struct job_flags *flags, char **text,
                                         struct err *e);

/* A warning for each path of the job that does not exist on this machine; the nodes may still have it.
 * strv_free. */
char **job_text_missing(const char *text);

/* The variables of the submitter's environment that are sent with a command job: PATH, VIRTUAL_ENV and the
 * like, WANDB_*. exports: names to add; ALL for every variable but those of the terminal, NONE for no
 * variable. A NULL-terminated list of "NAME=value"; strv_free. */
MUST_CHECK enum err_code job_text_environment(char *const *environment, char *const *exports, char ***out,
                                              struct err *e);
/* The names in exports that no variable has. NULL: none; strv_free. */
char **job_text_unset_exports(char *const *environment, char *const *exports);

#endif
