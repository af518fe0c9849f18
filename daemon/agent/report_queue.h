#ifndef DDP_DAEMON_AGENT_REPORT_QUEUE_H
#define DDP_DAEMON_AGENT_REPORT_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/protocol/spawn_report.h"
#include "proto/ddp.pb-c.h"

/* Workers' reports on their way to the coordinator. At most REPORT_QUEUE_CAP wait: one more drops the oldest,
 * and the number of dropped reports is sent along. Loop thread. */

#define REPORT_QUEUE_CAP 4096
#define REPORTS_BATCH 256

struct report_queue {
    Ddp__V1__Report *items[REPORT_QUEUE_CAP];
    size_t first, count;
    int64_t dropped;
};

void report_queue_add(struct report_queue *r, int64_t job, const struct spawn_report *report);
/* The oldest reports as one message that borrows them. After it was sent, report_queue_sent removes them. */
void report_queue_batch(const struct report_queue *r, Ddp__V1__Reports *out,
                        Ddp__V1__Report *items[REPORTS_BATCH]);
void report_queue_sent(struct report_queue *r, const Ddp__V1__Reports *batch);
void report_queue_release(struct report_queue *r);

#endif
