#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/worker/metric.h"
#include "daemon/supervisor/protocol/control.h"
#include "daemon/supervisor/report_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t jansson_line(const json_t *obj, struct metric_line *out)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)obj, key, value)
    {
        if (!strcmp(key, "step") && json_is_integer(value)) {
            out->has_step = true;
            out->step = json_integer_value(value);
        } else if (json_is_number(value) || json_is_null(value)) {
            metric_line_add(out, key, json_is_number(value) ? json_number_value(value) : NAN);
        }
    }
    return out->count;
}

/* Our parser and jansson agree on a line, unless it has a word that only ours accepts. */
static void line_compare(const char *text, size_t len)
{
    CLEANUP(json_release) json_t *obj = NULL;
    struct metric_line ours, theirs = {0};
    struct err why, e;
    bool accepted = metric_line_parse(text, len, &ours, &why) == ERR_OK;
    bool json = json_parse(text, len, METRIC_LINE_MAX, &obj, &e) == ERR_OK && json_is_object(obj);

    if (strstr(text, "NaN") || strstr(text, "Infinity"))
        return;
    if (memchr(text, '\0', len)) {
        BUG_ON(accepted); /* ours refuses every zero byte; jansson ignores one behind a number */
        return;
    }
    /* jansson refuses any duplicate name, ours only duplicates among the members that it keeps. */
    BUG_ON(accepted && !json && !strstr(e.msg, "duplicate"));
    BUG_ON(json && !accepted);
    if (!accepted || !json)
        return;
    BUG_ON(jansson_line(obj, &theirs) != ours.count);
    BUG_ON(ours.has_step != theirs.has_step || ours.step != theirs.step);
    for (size_t i = 0; i < ours.count; i++) {
        BUG_ON(strcmp(ours.metrics[i].name, theirs.metrics[i].name));
        BUG_ON(isnan(ours.metrics[i].value) ? !isnan(theirs.metrics[i].value)
                                            : ours.metrics[i].value != theirs.metrics[i].value);
    }
}

/* Every line that the supervisor forwards can be parsed by the coordinator and reaches the agent unchanged.
 * */
static void line_check(void *ctx, const char *text)
{
    CLEANUP(control_message_release) struct control_message arrived = {0};
    CLEANUP(buf_release) struct buf datagram = {0};
    const struct control_message sent = {.op = CONTROL_REPORT, .report = {.spawn = 1, .text = text}};
    struct buf *lines = ctx;
    struct metric_line line;
    struct err e;

    buf_puts(lines, text);
    buf_putc(lines, '\n');
    BUG_ON(!json_text_valid(text)); /* messages to the coordinator must be UTF-8 */
    BUG_ON(metric_line_parse(text, strlen(text), &line, &e));
    BUG_ON(line.count > METRIC_LINE_COUNT);
    for (size_t i = 0; i < line.count; i++)
        BUG_ON(!memchr(line.metrics[i].name, 0, METRIC_NAME));
    control_encode(&sent, &datagram);
    BUG_ON(control_decode(&arrived, datagram.data, datagram.len, &e));
    BUG_ON(strcmp(arrived.report.text, text));
}

static void feed_pieces(const uint8_t *data, size_t size, size_t piece, struct buf *lines)
{
    struct report_reader r = {0};

    for (size_t at = 0; at < size; at += piece)
        report_feed(&r, (const char *)data + at, size - at < piece ? size - at : piece, line_check, lines);
    report_reader_release(&r);
}

/* The input is what a worker writes to its report pipe: however the pipe cuts it, the same lines come out.
 * The whole input is also parsed as one line. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(buf_release) struct buf whole = {0}, cut = {0};

    feed_pieces(data, size, size ? size : 1, &whole);
    feed_pieces(data, size, 7, &cut);
    CLEANUP(free_text) char *text = xcalloc(1, size + 1);
    memcpy(text, data, size);
    line_compare(text, size);
    BUG_ON(whole.len != cut.len || (whole.len && memcmp(whole.data, cut.data, whole.len)));
    return 0;
}
