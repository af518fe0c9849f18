#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_LOG_PLACE_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_LOG_PLACE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* A worker's output goes to <log_dir>/<job>/generation_<N>/<node>/<local rank>/stdout.log and stderr.log. N and the local
 * rank are those with which the worker was started: as a member of later generations it continues to write to its open
 * files. The coordinator's record of a rank names the rank's spawn, and the spawn has the generation and the local rank
 * of this path. The last directory belongs to the job's user, who may put anything there (error.json, links, FIFOs). The
 * directories above it belong to the agent; other users may enter them but not list them. Path names are therefore
 * trusted only down to log_dir; below it everything is opened by directory descriptors. The job number is the present
 * cluster's: the agent moves logs of a former cluster aside (daemon/agent/logs/log_cluster.h). */

#define LOG_PLACE_DIR_MODE 0751  /* of the directories above the last one */
#define LOG_PLACE_LAST_MODE 0750 /* of the directory that belongs to the job's user */
#define LOG_PLACE_FILE_MODE 0640

/* The path of the worker's directory; relative to log_dir when log_dir is NULL. The caller frees it. */
char *log_place_path(const char *log_dir, int64_t job, int64_t first_generation, const char *node,
                     int first_local_rank);
/* Opens the directory; `dir` is a path from log_place_path. */
MUST_CHECK enum err_code log_place_open(const char *dir, int *fd, struct err *e);
/* A worker's files, open for appending. */
struct log_files {
    int out, err;     /* stdout.log, stderr.log */
    int times;        /* times.log (log_note.h); -1: it cannot be opened, so no notes are made */
    int64_t sizes[2]; /* of stdout.log and stderr.log when they were opened */
};
#define LOG_FILES_NONE ((struct log_files){-1, -1, -1, {0, 0}})
void log_files_close(struct log_files *files);

/* Makes the directory if it is missing, opens the files, and makes the user the owner of all of them. */
MUST_CHECK enum err_code log_place_make(const char *dir, uid_t user, gid_t group, struct log_files *out,
                                        struct err *e);

#endif
