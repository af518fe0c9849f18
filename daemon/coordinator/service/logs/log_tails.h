#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_TAILS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_TAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Copies of the newest output of each worker, for `ddpctl logs` when the worker's node is lost. Agents send them
 * (daemon/agent/logs/log_tail_sender.h).
 *
 * Copies are in memory only. In the database each update would be a commit, several times a second for each node, and
 * all other commits would wait for it. After a restart of the coordinator, connected nodes send their copies again.
 * Only the copies of nodes that were lost before are gone.
 *
 * Limits: LOG_TAIL_BYTES for each stream, LOG_TAILS_JOB_BYTES for each job, and LOG_TAILS_BYTES for all jobs. If a job
 * has many streams, each gets less. When LOG_TAILS_BYTES are used, the copies of the job that has sent nothing for the
 * longest time are removed first. */
#define LOG_TAIL_BYTES (64 << 10)
#define LOG_TAIL_LEAST (1 << 10)
#define LOG_TAILS_JOB_BYTES (16 << 20)
#define LOG_TAILS_BYTES (128 << 20)
#define LOG_TAIL_RUNS 512 /* times in each copy; when there are more, neighbours are joined */
#define LOG_TAIL_COST 256 /* bytes that count for a copy in addition to its content */

struct log_tails;

/* stdout or stderr of one spawn. */
struct log_tail {
    int64_t spawn;
    bool standard_error;
    char *node;
    int64_t offset; /* of the first byte, in the file */
    struct buf data;
    int64_t *run_bytes, *run_us; /* when the bytes were written, as in Ddp__V1__LogChunk */
    size_t run_count, run_cap;
    int64_t sent_ms;              /* boot clock: when its newest part arrived */
    size_t cost;                  /* bytes that count against the limits */
    struct log_tail *next, *prev; /* of the same job, the newest first */
};

/* A part of a file, from `offset` on. */
struct log_tail_part {
    int64_t job, spawn;
    bool standard_error;
    const char *node;
    int64_t offset;
    const void *data;
    size_t size;
    const int64_t *run_bytes, *run_us;
    size_t run_count;
};

struct log_tails *log_tails_create(void);
void log_tails_free(struct log_tails *t);
/* Appends the part to the copy, or replaces it if bytes between them are missing. */
void log_tails_put(struct log_tails *t, const struct log_tail_part *part, int64_t now_ms);
const struct log_tail *log_tails_find(const struct log_tails *t, int64_t job, int64_t spawn,
                                      bool standard_error);
void log_tails_drop_job(struct log_tails *t, int64_t job);
size_t log_tails_bytes(const struct log_tails *t); /* of all copies, as they count against the limits */

/* A message of the node has arrived. complete_ms: when the node's copies were last complete (boot clock); 0: unknown. */
void log_tails_heard(struct log_tails *t, const char *node, int64_t complete_ms, int64_t now_ms);
/* Returns how many ms the copy is older than its node's last message. */
int64_t log_tails_age(const struct log_tails *t, const struct log_tail *tail);

#endif
