#ifndef DDP_DAEMON_AGENT_REPORTS_H
#define DDP_DAEMON_AGENT_REPORTS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/protocol/control.h"
#include "proto/ddp.pb-c.h"

/* Workers' reports on their way to the coordinator: at most REPORTS_CAP wait, the oldest go first and are
 * counted. */

#define REPORTS_CAP 4096
#define REPORTS_BATCH 256

struct reports {
    Ddp__V1__Report *items[REPORTS_CAP];
    size_t first, count;
    int64_t dropped;
};

void reports_add(struct reports *r, int64_t job, const struct spawn_report *report);
/* The oldest, as one message that borrows them; reports_sent takes them away once it has gone out. */
void reports_batch(const struct reports *r, Ddp__V1__Reports *out, Ddp__V1__Report *items[REPORTS_BATCH]);
void reports_sent(struct reports *r, const Ddp__V1__Reports *batch);
void reports_release(struct reports *r);

#endif
