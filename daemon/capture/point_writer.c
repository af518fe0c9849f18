#include "daemon/capture/point_writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define POINT_ROOM 50 /* metrics of a step that have one record each */

static int lines_most(const struct point_writer *w)
{
    return w->ends ? POINT_LINES_LAST : POINT_LINES_MOST;
}

bool point_has_room(const struct point_writer *w, int64_t now_ms)
{
    return w->second != now_ms / 1000 || w->lines + POINT_ROOM <= lines_most(w);
}

void point_flush(struct point_writer *w, int64_t now_ms)
{
    if (w->second == now_ms / 1000)
        return;
    w->second = now_ms / 1000;
    w->lines = w->held.len > 0;
    buf_append(&w->out, w->held.data, w->held.len);
    buf_clear(&w->held);
}

bool point_put(struct point_writer *w, const struct metric_line *line, int64_t now_ms)
{
    if (!line->count)
        return false;
    point_flush(w, now_ms);
    const bool kept = w->lines < lines_most(w);
    struct jout o = {.buf = kept ? &w->out : &w->held};
    buf_clear(&w->held);
    w->lines += kept;
    jout_open(&o, NULL, '{');
    if (line->has_step)
        jout_int(&o, "step", line->step);
    for (size_t i = 0; i < line->count; i++)
        jout_real(&o, line->metrics[i].name, line->metrics[i].value); /* null: not a number */
    jout_close(&o, '}');
    buf_putc(o.buf, '\n');
    return kept;
}

void point_note(struct point_writer *w, const char *fmt, ...)
{
    struct jout o = {.buf = &w->out};
    char text[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (int i = 0; i < w->note_count; i++)
        if (strcmp(w->notes[i], text) == 0)
            return;
    if (w->note_count == POINT_NOTES_MOST)
        return;
    w->notes[w->note_count++] = xstrdup(text);
    jout_open(&o, NULL, '{');
    jout_text(&o, "note", text);
    jout_close(&o, '}');
    buf_putc(&w->out, '\n');
}

void point_writer_release(struct point_writer *w)
{
    for (int i = 0; i < w->note_count; i++)
        free(w->notes[i]);
    buf_release(&w->out);
    buf_release(&w->held);
    memset(w, 0, sizeof(*w));
}
