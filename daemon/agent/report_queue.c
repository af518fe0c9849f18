#include "daemon/agent/report_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The texts follow the message in the same allocation, so that one free ends both. */
static Ddp__V1__Report *report_message_make(int64_t job, const struct metric_report *from)
{
    const char *captured = from->captured ? from->captured : "";
    size_t size = strlen(from->text) + 1, more = strlen(captured) + 1;
    Ddp__V1__Report *r = xmalloc(sizeof(*r) + size + more);

    ddp__v1__report__init(r);
    r->job = job;
    r->spawn = from->spawn;
    r->time_ms = from->time_ms;
    r->line = memcpy(r + 1, from->text, size);
    r->captured = memcpy(r->line + size, captured, more);
    return r;
}

static void report_queue_drop_first(struct report_queue *r)
{
    r->bytes -= strlen(r->items[r->first]->line);
    free(r->items[r->first]);
    r->first = (r->first + 1) % REPORT_QUEUE_COUNT;
    r->count--;
}

void report_queue_add(struct report_queue *r, int64_t job, const struct metric_report *report)
{
    size_t len = strlen(report->text);

    while (r->count && (r->count == REPORT_QUEUE_COUNT || r->bytes + len > REPORT_QUEUE_BYTES)) {
        report_queue_drop_first(r);
        r->dropped++;
    }
    r->items[(r->first + r->count++) % REPORT_QUEUE_COUNT] = report_message_make(job, report);
    r->bytes += len;
}

void report_queue_batch(const struct report_queue *r, Ddp__V1__Reports *out,
                        Ddp__V1__Report *items[REPORT_BATCH_COUNT])
{
    size_t n = 0, bytes = 0;

    for (; n < r->count && n < REPORT_BATCH_COUNT; n++) {
        items[n] = r->items[(r->first + n) % REPORT_QUEUE_COUNT];
        bytes += strlen(items[n]->line);
        if (n && bytes > REPORT_BATCH_BYTES)
            break;
    }
    ddp__v1__reports__init(out);
    out->n_reports = n;
    out->reports = items;
    out->dropped = r->dropped;
}

void report_queue_sent(struct report_queue *r, const Ddp__V1__Reports *batch)
{
    for (size_t i = 0; i < batch->n_reports; i++)
        report_queue_drop_first(r);
    r->dropped -= batch->dropped;
}

void report_queue_release(struct report_queue *r)
{
    while (r->count)
        report_queue_drop_first(r);
}
