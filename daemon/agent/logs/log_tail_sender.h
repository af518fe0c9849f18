#ifndef DDP_DAEMON_AGENT_LOGS_LOG_TAIL_SENDER_H
#define DDP_DAEMON_AGENT_LOGS_LOG_TAIL_SENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Sends the newest output of the node's workers to the coordinator, which keeps a copy of it in case the node is lost: of each
 * stream the last LOG_TAIL_MOST bytes, and then what comes new. It looks every LOG_TAIL_EVERY_MS, and at once when a
 * worker has ended, before the coordinator hears of that and forgets the worker. The coordinator says how many
 * bytes the node may send in a second; streams that grow faster are sent in turn, and what they have skipped meanwhile is
 * missing in the copy. Loop thread. */
#define LOG_TAIL_MOST (64 << 10)
#define LOG_TAIL_EVERY_MS 2000

struct log_tail_sender;

struct log_tail_options {
    const char *log_dir, *node;
    enum err_code (*send)(void *ctx, const Ddp__V1__AgentUp *up, struct err *e);
    void *ctx;
};

struct log_tail_worker {
    int64_t job, spawn, first_generation;
    int first_local_rank;
    bool exited;
};

struct log_tail_sender *log_tail_sender_create(const struct log_tail_options *options);
void log_tail_sender_free(struct log_tail_sender *s);
void log_tail_sender_set_rate(struct log_tail_sender *s, int64_t bytes_per_second); /* 0: send nothing */
void log_tail_sender_new_session(
    struct log_tail_sender *s); /* sends everything again, when there is a rate */
/* Sends what is due. workers: all that the node knows of; one that is missing has ended. Returns when to call it again
 * (BOOTTIME ms), INT64_MAX: not before something changes. */
int64_t log_tail_sender_run(struct log_tail_sender *s, const struct log_tail_worker *workers, size_t count,
                            int64_t now);
/* How long ago everything had been sent, in ms; -1: never in this session. */
int64_t log_tail_sender_age(const struct log_tail_sender *s, int64_t now);

#endif
