#include "client/web/web_lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define LINE_MOST 16384 /* a longer line is divided */
#define PARTS_MOST 4096 /* more ranks than that do not wait for line ends */
#define BAR_MS 10000    /* a progress bar that takes longer becomes a line this often */

struct line_part {
    int32_t rank;
    bool standard_error;
    int64_t generation, written_ms;
    int64_t shown_ms; /* when the line, or its last text that became a line, was begun */
    bool returned;    /* a carriage return has come: the next text replaces this one */
    bool bar;         /* texts of this line have been replaced */
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

/* Blanks and sequences such as ESC [ 2 K, which erases the line. */
static bool text_is_blank(const struct buf *text)
{
    const char *at = text->data, *end = at + text->len;
    while (at < end) {
        if (*at == '\033' && end - at > 1 && at[1] == '[') {
            for (at += 2; at < end && (*at == ';' || (*at >= '0' && *at <= '9'));)
                at++;
            at += at < end;
        } else if (*at == ' ' || *at == '\t') {
            at++;
        } else {
            return false;
        }
    }
    return true;
}

static void lines_put_part(struct web_lines *w, struct line_part *part)
{
    if (part->text.len && !(part->bar && text_is_blank(&part->text)))
        lines_put(w, part, part->text.data, part->text.len);
    buf_clear(&part->text);
}

/* The line ends. Programs wipe out a progress bar with blanks, which is no line. */
static void lines_end_line(struct web_lines *w, struct line_part *part)
{
    if (!part->text.len)
        lines_put(w, part, "", 0);
    lines_put_part(w, part);
    part->returned = part->bar = false;
}

/* New text follows a carriage return. */
static void lines_replace_text(struct web_lines *w, struct line_part *part, int64_t now_ms)
{
    part->returned = false;
    part->bar = true;
    if (now_ms - part->shown_ms >= BAR_MS) {
        lines_put_part(w, part);
        part->shown_ms = now_ms;
    }
    buf_clear(&part->text);
}

/* Adds text of the line that begins at `at` and returns its end: the next line feed or carriage return, or `end`. */
static const char *lines_take_text(struct web_lines *w, struct line_part *part, const char *at,
                                   const char *end, int64_t now_ms)
{
    size_t size = 0;
    while (at + size < end && at[size] != '\n' && at[size] != '\r')
        size++;
    if (!size)
        return at;
    if (part->returned)
        lines_replace_text(w, part, now_ms);
    if (part->text.len >= LINE_MOST)
        lines_put_part(w, part);
    if (!part->text.len) {
        part->written_ms = now_ms;
        part->shown_ms = part->bar ? part->shown_ms : now_ms;
    }
    if (part->text.len + size > LINE_MOST)
        size = LINE_MOST - part->text.len;
    buf_append(&part->text, at, size);
    return at + size;
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
        at = lines_take_text(w, part, at, end, data->written_ms);
        if (at == end)
            break;
        if (*at == '\r') {
            part->returned = true;
            at++;
        } else if (*at == '\n') {
            if (!part->text.len)
                part->written_ms = data->written_ms;
            lines_end_line(w, part);
            at++;
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
