#include <stdint.h>
#include <string.h>

#include "daemon/supervisor/report_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    int64_t steps, reports, metrics;
};

static void count(void *ctx, const struct spawn_report *report)
{
    struct seen *seen = ctx;

    seen->reports++;
    seen->steps += report->has_step;
    BUG_ON(report->count > REPORT_METRICS);
    for (size_t i = 0; i < (size_t)report->count; i++)
        seen->metrics += (int64_t)strnlen(report->metrics[i].name, REPORT_NAME) < REPORT_NAME;
}

static struct seen feed(const uint8_t *data, size_t size, size_t piece)
{
    struct report_reader r = {0};
    struct seen seen = {0};

    for (size_t at = 0; at < size; at += piece)
        report_feed(&r, (const char *)data + at, size - at < piece ? size - at : piece, count, &seen);
    report_reader_release(&r);
    return seen;
}

/* Any bytes on a report pipe: the same reports come out however the pipe cuts them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = feed(data, size, size ? size : 1), cut = feed(data, size, 7);

    BUG_ON(memcmp(&whole, &cut, sizeof(whole)));
    return 0;
}
