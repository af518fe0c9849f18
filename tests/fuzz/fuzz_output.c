#include <stdint.h>
#include <string.h>

#include "base/err.h"
#include "base/worker/metric.h"
#include "daemon/capture/output_points.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each line is one that the supervisor accepts. */
static void lines_check(const struct buf *out)
{
    char text[METRIC_LINE_MAX + 1];

    for (size_t at = 0; at < out->len;) {
        const size_t len = strcspn(out->data + at, "\n");
        struct metric_line line;
        struct err e;

        BUG_ON(len > METRIC_LINE_MAX);
        memcpy(text, out->data + at, len);
        text[len] = 0;
        BUG_ON(metric_line_parse(text, len, &line, &e));
        at += len + 1;
    }
}

static void output_read(const uint8_t *data, size_t size, size_t piece, struct buf *found)
{
    struct point_writer writer = {0};
    struct output_points o = {.writer = &writer};

    for (size_t at = 0; at < size; at += piece)
        output_points_feed(&o, false, (const char *)data + at, size - at < piece ? size - at : piece, 1000);
    output_points_feed(&o, true, (const char *)data, size, 1000);
    output_points_end(&o);
    lines_check(&writer.out);
    buf_append(found, writer.out.data, writer.out.len);
    output_points_release(&o);
    point_writer_release(&writer);
}

/* The input is what a program prints: however it is cut, the same points come out. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole = {0}, cut = {0};

    output_read(data, size, size ? size : 1, &whole);
    output_read(data, size, 7, &cut);
    BUG_ON(whole.len != cut.len || (whole.len && memcmp(whole.data, cut.data, whole.len)));
    buf_release(&whole);
    buf_release(&cut);
    return 0;
}
