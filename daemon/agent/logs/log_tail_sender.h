#ifndef DDP_DAEMON_AGENT_LOGS_LOG_TAIL_SENDER_H
#define DDP_DAEMON_AGENT_LOGS_LOG_TAIL_SENDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Sends the newest output of the node's workers to the coordinator, which keeps a copy in case the node is lost. For each stream
 * it sends the last LOG_TAIL_MOST bytes, and then new output. It looks for output every LOG_TAIL_EVERY_MS. When a worker has
 * ended, it looks at once, before the coordinator learns of the end and forgets the worker. The coordinator limits the
 * bytes that the node may send in a second. If streams grow faster, they are sent in turn, and the copies lack the output that
 * was skipped. Loop thread. */
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
    struct log_tail_sender *s); /* sends everything again, as soon as a rate is set */
/* Sends what is due. workers: all workers that the node knows; a worker that is missing has ended. Returns the time of the next
 * call (BOOTTIME ms), or INT64_MAX if only a change needs one. */
int64_t log_tail_sender_run(struct log_tail_sender *s, const struct log_tail_worker *workers, size_t count,
                            int64_t now);
/* Returns the time in ms since everything had been sent; -1: never in this session. */
int64_t log_tail_sender_age(const struct log_tail_sender *s, int64_t now);

#endif
