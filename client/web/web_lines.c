#include "client/web/web_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define LINE_MOST 16384 /* a longer line is divided */
#define PARTS_MOST 4096 /* more ranks than that do not wait for line ends */

struct line_part {
    int32_t rank;
    bool standard_error;
    int64_t generation, written_ms;
    struct buf text;
};

static void lines_put(struct web_lines *w, const struct line_part *part, const char *text, size_t size)
{
    struct jout o = {.buf = &w->json, .need_comma = w->count > 0};
    jout_open(&o, NULL, '{');
    jout_int(&o, "rank", part->rank);
    jout_bool(&o, "stderr", part->standard_error);
    jout_int(&o, "generation", part->generation);
    jout_int(&o, "written_ms", part->written_ms);
    jout_text_n(&o, "text", text, size);
    jout_close(&o, '}');
    w->count++;
}

static void lines_put_part(struct web_lines *w, struct line_part *part)
{
    if (part->text.len)
        lines_put(w, part, part->text.data, part->text.len);
    buf_clear(&part->text);
}

static struct line_part *lines_part(struct web_lines *w, const Ddp__V1__LogData *data)
{
    for (size_t i = 0; i < w->part_count; i++) {
        struct line_part *part = &w->parts[i];
        if (part->rank == data->rank && part->standard_error == data->standard_error &&
            part->generation == data->generation)
            return part;
    }
    if (w->part_count == PARTS_MOST) {
        lines_put_part(w, &w->parts[0]);
        buf_release(&w->parts[0].text);
        memmove(w->parts, w->parts + 1, --w->part_count * sizeof(*w->parts));
    }
    w->parts = array_grow(w->parts, w->part_count, &w->part_cap, sizeof(*w->parts));
    struct line_part *part = &w->parts[w->part_count++];
    *part = (struct line_part){
        .rank = data->rank, .standard_error = data->standard_error, .generation = data->generation};
    return part;
}

static void lines_note(struct web_lines *w, const char *note)
{
    struct jout o = {.buf = &w->notes, .need_comma = w->notes.len > 0};
    jout_text(&o, NULL, note);
    w->noted = true;
}

void web_lines_add(struct web_lines *w, const Ddp__V1__LogData *data)
{
    if (*data->note)
        lines_note(w, data->note);
    w->incomplete = w->incomplete || data->incomplete;
    if (data->incomplete && !w->noted) /* the coordinator drops notes that a slow reader has no room for */
        lines_note(w, "a part of the logs is missing");
    if (!data->data.len)
        return; /* a note alone: data.data may be NULL */
    struct line_part *part = lines_part(w, data);
    const char *at = (const char *)data->data.data, *end = at + data->data.len;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *text_end = stop ? stop : end;
        if (!part->text.len)
            part->written_ms = data->written_ms;
        size_t size = (size_t)(text_end - at);
        if (part->text.len + size > LINE_MOST)
            size = LINE_MOST - part->text.len;
        buf_append(&part->text, at, size);
        at += size;
        if (at == text_end && stop) {
            if (part->text.len && part->text.data[part->text.len - 1] == '\r')
                part->text.len--;
            lines_put(w, part, part->text.len ? part->text.data : "", part->text.len);
            buf_clear(&part->text);
            at++;
        } else if (part->text.len >= LINE_MOST) {
            lines_put_part(w, part);
        }
    }
}

void web_lines_finish(struct web_lines *w)
{
    for (size_t i = 0; i < w->part_count; i++)
        lines_put_part(w, &w->parts[i]);
}

void web_lines_clear(struct web_lines *w)
{
    buf_clear(&w->json);
    buf_clear(&w->notes);
    w->count = 0;
}

void web_lines_release(struct web_lines *w)
{
    for (size_t i = 0; i < w->part_count; i++)
        buf_release(&w->parts[i].text);
    free(w->parts);
    buf_release(&w->json);
    buf_release(&w->notes);
    *w = (struct web_lines){0};
}
