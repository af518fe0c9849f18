#include "daemon/agent/report_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* One allocation holds the report, its metrics, the pointers to them, and their names, so that one free ends
 * it. */
static Ddp__V1__Report *report_message_make(int64_t job, const struct spawn_report *from)
{
    size_t size = sizeof(Ddp__V1__Report) +
                  from->count * (sizeof(Ddp__V1__Metric) + sizeof(Ddp__V1__Metric *) + REPORT_NAME);
    Ddp__V1__Report *r = xcalloc(1, size);
    Ddp__V1__Metric *metrics = (Ddp__V1__Metric *)(r + 1);
    Ddp__V1__Metric **list = (Ddp__V1__Metric **)(metrics + from->count);
    char *names = (char *)(list + from->count);

    /* a metric that is not a number is NaN here and in the message */
    ddp__v1__report__init(r);
    r->job = job;
    r->spawn = from->spawn;
    r->time_ms = from->time_ms;
    r->step = from->step;
    r->has_step = from->has_step;
    r->n_metrics = from->count;
    r->metrics = list;
    for (size_t i = 0; i < from->count; i++) {
        ddp__v1__metric__init(&metrics[i]);
        metrics[i].name = memcpy(names + i * REPORT_NAME, from->metrics[i].name, REPORT_NAME);
        metrics[i].value = from->metrics[i].value;
        list[i] = &metrics[i];
    }
    return r;
}

static void report_queue_drop_first(struct report_queue *r)
{
    free(r->items[r->first]);
    r->first = (r->first + 1) % REPORT_QUEUE_CAP;
    r->count--;
}

void report_queue_add(struct report_queue *r, int64_t job, const struct spawn_report *report)
{
    if (r->count == REPORT_QUEUE_CAP) {
        report_queue_drop_first(r);
        r->dropped++;
    }
    r->items[(r->first + r->count++) % REPORT_QUEUE_CAP] = report_message_make(job, report);
}

void report_queue_batch(const struct report_queue *r, Ddp__V1__Reports *out,
                        Ddp__V1__Report *items[REPORTS_BATCH])
{
    ddp__v1__reports__init(out);
    out->n_reports = r->count < REPORTS_BATCH ? r->count : REPORTS_BATCH;
    for (size_t i = 0; i < out->n_reports; i++)
        items[i] = r->items[(r->first + i) % REPORT_QUEUE_CAP];
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
