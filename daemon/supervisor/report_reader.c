#include "daemon/supervisor/report_reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

static size_t non_finite_word_length(const char *s, size_t left)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);

        if (n <= left && !memcmp(s, words[i], n))
            return n;
    }
    return 0;
}

/* JSON has no NaN, but a loss that is NaN must be reported. Outside strings such a word becomes null. */
static void line_make_strict(char *s, size_t len, struct buf *out)
{
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        size_t n = in_string ? 0 : non_finite_word_length(s + i, len - i);

        if (n) {
            buf_puts(out, "null");
            i += n - 1;
            continue;
        }
        if (in_string && s[i] == '\\' && i + 1 < len)
            buf_putc(out, s[i++]);
        else if (s[i] == '"')
            in_string = !in_string;
        buf_putc(out, s[i]);
    }
}

bool report_parse(const char *line, size_t len, struct spawn_report *out)
{
    CLEANUP(buf_release) struct buf soft = {0};
    CLEANUP(free_text) char *copy = xmemdup(line, len ? len : 1);
    CLEANUP(json_release) json_t *obj = NULL;
    struct err e;
    const char *key;
    json_t *value;

    line_make_strict(copy, len, &soft);
    if (!soft.len || json_parse(soft.data, soft.len, REPORT_LINE_MAX * 2, &obj, &e) || !json_is_object(obj))
        return false;
    json_object_foreach(obj, key, value)
    {
        if (!strcmp(key, "step") && json_is_integer(value)) {
            out->has_step = true;
            out->step = json_integer_value(value);
        } else if (json_is_number(value) || json_is_null(value)) {
            spawn_report_add(out, key, json_is_number(value) ? json_number_value(value) : NAN);
        }
    }
    return true;
}

static void line_take(struct report_reader *r, void (*fn)(void *, const struct spawn_report *), void *ctx)
{
    struct spawn_report report;

    if (r->line.len) {
        memset(&report, 0, sizeof(report));
        if (report_parse(r->line.data, r->line.len, &report))
            fn(ctx, &report);
        else
            r->bad++;
    }
    buf_clear(&r->line);
}

void report_feed(struct report_reader *r, const char *data, size_t len,
                 void (*fn)(void *ctx, const struct spawn_report *report), void *ctx)
{
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t part = end ? (size_t)(end - data) : len;

        if (!r->skipping && r->line.len + part > REPORT_LINE_MAX) {
            r->skipping = true;
            r->bad++;
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
