#ifndef DDP_DAEMON_AGENT_LOGS_LOG_READERS_H
#define DDP_DAEMON_AGENT_LOGS_LOG_READERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Sends the workers' log files to the coordinator, one piece at a time. A file is opened anew for every
 * piece: it may not exist yet, and it may be cut or removed. Loop thread. */

struct log_readers;
struct log_readers_options {
    const char *log_dir, *node;
    /* Sends one chunk. After an error log_readers_pump tries again. */
    enum err_code (*send)(void *ctx, const Ddp__V1__LogChunk *chunk, struct err *e);
    /* No process writes to the log at this place (log_place.h) any more. */
    bool (*ended)(void *ctx, int64_t job, int64_t first_generation, int first_local_rank);
    void *ctx;
};

struct log_readers *log_readers_create(const struct log_readers_options *options);
void log_readers_free(struct log_readers *l);
void log_readers_request(struct log_readers *l, const Ddp__V1__LogRead *request);
void log_readers_drop_all(struct log_readers *l); /* the session has ended */
/* Sends what can be sent, and continues the searches for a few milliseconds. Returns the time to the next call in ms, if a reader
 * waits for output, for room in the queue or to continue its search. 0: no reader waits. */
int64_t log_readers_pump(struct log_readers *l);

#endif
