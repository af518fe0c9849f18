#include "daemon/supervisor/report_reader.h"

#include <string.h>

#include "base/worker/metric.h"

static void line_refuse(struct report_reader *r, const struct err *e)
{
    if (!r->refused++)
        r->first_error = *e;
}

static void line_take(struct report_reader *r, void (*fn)(void *, const char *), void *ctx)
{
    struct metric_line line;
    struct err e;

    if (!r->line.len)
        return;
    if (metric_line_parse(r->line.data, r->line.len, &line, &e)) {
        line_refuse(r, &e);
    } else {
        r->taken++;
        fn(ctx, r->line.data);
    }
    buf_clear(&r->line);
}

void report_feed(struct report_reader *r, const char *data, size_t len,
                 void (*fn)(void *ctx, const char *line), void *ctx)
{
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t part = end ? (size_t)(end - data) : len;

        if (!r->skipping && r->line.len + part > METRIC_LINE_MAX) {
            struct err e;

            err_set(&e, ERR_INVALID_ARGUMENT, "the line is longer than %d bytes", METRIC_LINE_MAX);
            line_refuse(r, &e);
            r->skipping = true;
            buf_clear(&r->line);
        }
        if (!r->skipping)
            buf_append(&r->line, data, part);
        if (!end)
            return;
        if (!r->skipping)
            line_take(r, fn, ctx);
        r->skipping = false;
        data += part + 1;
        len -= part + 1;
    }
}

void report_reader_release(struct report_reader *r)
{
    buf_release(&r->line);
}
