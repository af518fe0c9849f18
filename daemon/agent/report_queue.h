#ifndef DDP_DAEMON_AGENT_REPORT_QUEUE_H
#define DDP_DAEMON_AGENT_REPORT_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/worker/metric.h"
#include "proto/ddp.pb-c.h"

/* Workers' lines on their way to the coordinator. At most REPORT_QUEUE_COUNT lines and REPORT_QUEUE_BYTES
 * wait: one more drops the oldest, and the number of dropped lines is sent along. Loop thread. */

#define REPORT_QUEUE_COUNT 4096
#define REPORT_QUEUE_BYTES (4 << 20)
/* Of one message. The coordinator parses each byte of it, so one node must not keep it busy. */
#define REPORT_BATCH_COUNT 256
#define REPORT_BATCH_BYTES (128 << 10)

struct report_queue {
    Ddp__V1__Report *items[REPORT_QUEUE_COUNT];
    size_t first, count, bytes; /* bytes: of the lines */
    int64_t dropped;
};

void report_queue_add(struct report_queue *r, int64_t job, const struct metric_report *report);
/* The oldest reports as one message that borrows them. After it was sent, report_queue_sent removes them. */
void report_queue_batch(const struct report_queue *r, Ddp__V1__Reports *out,
                        Ddp__V1__Report *items[REPORT_BATCH_COUNT]);
void report_queue_sent(struct report_queue *r, const Ddp__V1__Reports *batch);
void report_queue_release(struct report_queue *r);

/* The reports and their number of dropped lines in a file, for the next agent. An empty queue writes no file. */
MUST_CHECK enum err_code report_queue_save(const struct report_queue *r, const char *path, struct err *e);
/* Appends what the file has, and removes the file, even if it is damaged (DATA_LOSS). OK if there is no file. */
MUST_CHECK enum err_code report_queue_load(struct report_queue *r, const char *path, struct err *e);

#endif
