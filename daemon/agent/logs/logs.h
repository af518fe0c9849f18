#ifndef DDP_DAEMON_AGENT_LOGS_LOGS_H
#define DDP_DAEMON_AGENT_LOGS_LOGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Serves the workers' log files, a piece at a time as the coordinator asks. Files are opened anew for every
 * piece: they may not be there yet, be rotated, or be removed. Loop thread. */

struct logs;
struct logs_options {
    const char *log_dir, *node;
    /* Sends one chunk; RESOURCE_EXHAUSTED: later (logs_pump). */
    enum err_code (*send)(void *ctx, const Ddp__V1__LogChunk *chunk, struct err *e);
    /* No process writes to this (job, generation, local rank) any more. */
    bool (*ended)(void *ctx, int64_t job, int64_t generation, int local_rank);
    void *ctx;
};

struct logs *logs_create(const struct logs_options *options);
void logs_free(struct logs *l);
void logs_request(struct logs *l, const Ddp__V1__LogRead *request);
void logs_drop_all(struct logs *l); /* the session has ended */
/* Sends what can be sent; true while a reader waits for more to be written (or for room): call again soon. */
bool logs_pump(struct logs *l);

#endif
