#ifndef DDP_DAEMON_AGENT_LOGS_LOG_LIMIT_PASS_H
#define DDP_DAEMON_AGENT_LOGS_LOG_LIMIT_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* One pass over this node's worker logs: measures their disk space and enforces the limits.
 *
 *   a job above per_job    its largest files are cut in the middle (base/cut_file.h), all to one size
 *   all above total        logs of ended jobs are removed, oldest first; then the largest jobs are cut
 *
 * An ended job is measured only once. Runs in a pool thread and uses only its own struct. */

struct log_usage {
    char *name;        /* of the job's directory, below log_dir: "7", "former_1f2e3d4c/7" (log_cluster.h) */
    int64_t bytes;     /* on the disk */
    int64_t newest_ms; /* wall: the last change of a file */
    bool live;
    bool settled; /* the job has ended, and was measured after that */
    bool there;   /* its directory was found in this pass */
};

struct log_limit_pass {
    /* in */
    const char *log_dir, *node;
    int64_t per_job, total; /* bytes; 0: no limit */
    int64_t now_ms;         /* wall */
    int64_t *live;          /* jobs that write logs or may start to */
    size_t live_count;
    /* kept between passes */
    struct log_usage *usage;
    size_t count, cap;
    /* out */
    int files_cut, jobs_removed;
    struct err problem; /* the first of this pass; code ERR_OK: none */
};

void log_limit_pass_run(struct log_limit_pass *r);
void log_limit_pass_release(struct log_limit_pass *r); /* frees the usage */

#endif
