#include "daemon/agent/report_queue.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "daemon/agent/message_file.h"
#include "proto/rpc_codec.h"

#define REPORT_FILE_MAX (4 * REPORT_QUEUE_BYTES) /* lines, and the other fields of short ones */

static const char magic[] = "ddp reports 1\n";

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

enum err_code report_queue_save(const struct report_queue *r, const char *path, struct err *e)
{
    Ddp__V1__Report *items[REPORT_QUEUE_COUNT];
    Ddp__V1__Reports all;

    for (size_t i = 0; i < r->count; i++)
        items[i] = r->items[(r->first + i) % REPORT_QUEUE_COUNT];
    ddp__v1__reports__init(&all);
    all.n_reports = r->count;
    all.reports = items;
    all.dropped = r->dropped;
    return r->count ? message_file_write(path, magic, &all, false, e) : ERR_OK;
}

enum err_code report_queue_load(struct report_queue *r, const char *path, struct err *e)
{
    void *message = NULL;

    if (!file_exists(path))
        return ERR_OK;
    const enum err_code code =
        message_file_read(path, magic, REPORT_FILE_MAX, &ddp__v1__reports__descriptor, &message, e);
    (void)unlink(path);
    if (code)
        return code;
    const Ddp__V1__Reports *all = message;
    for (size_t i = 0; i < all->n_reports; i++) {
        const Ddp__V1__Report *from = all->reports[i];
        const struct metric_report report = {.spawn = from->spawn,
                                             .time_ms = from->time_ms,
                                             .text = from->line,
                                             .captured = *from->captured ? from->captured : NULL};
        report_queue_add(r, from->job, &report);
    }
    r->dropped += all->dropped;
    rpc_free(message);
    return ERR_OK;
}
