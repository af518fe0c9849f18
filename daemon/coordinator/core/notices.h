#ifndef DDP_DAEMON_COORDINATOR_CORE_NOTICES_H
#define DDP_DAEMON_COORDINATOR_CORE_NOTICES_H

#include <stdbool.h>
#include <stddef.h>

/* Which hooks hear of an event. Each gets a notice of its own, which is committed with the event and stays in the
 * database until the hook has got it. */
enum notice_kind {
    NOTICE_STARTED,   /* a job's ranks run for the first time */
    NOTICE_RESTARTED, /* a failure that counts against max_restarts, and the job starts again */
    NOTICE_STALLED,
    NOTICE_SUCCEEDED,
    NOTICE_FAILED,
    NOTICE_CANCELLED,
    NOTICE_NODE_LOST,
    NOTICE_DRAINED, /* a node */
    NOTICE_GPU_SICK,
    NOTICE_GPUS_IDLE, /* of a job */
};
extern const char *const notice_names[]; /* by kind, NULL-terminated */

/* A hook of coordinator.yaml, as far as it matters here. */
struct core_hook {
    char *name;
    unsigned on;  /* 1 << kind */
    char **users; /* patterns of fnmatch(3), of which one must match the job's user; NULL: any */
    char **jobs;  /* the same of the job's name. A hook with one of these two gets no events of nodes */
};

struct core;
struct job;
/* The hooks that want it, and the job's own `tell` for the kinds that it hears. */
void notice_job(struct core *core, const struct job *job, enum notice_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void notice_node(struct core *core, const char *node, enum notice_kind kind, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool notice_wanted(const struct core *core, const struct job *job, enum notice_kind kind);

#endif
