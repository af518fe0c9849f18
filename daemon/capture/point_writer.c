#include "daemon/capture/point_writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

bool point_put(struct point_writer *w, const struct metric_line *line, int64_t now_ms)
{
    struct jout o = {.buf = &w->out};

    if (w->second != now_ms / 1000) {
        w->second = now_ms / 1000;
        w->lines = 0;
    }
    if (!line->count || w->lines >= POINT_LINES_MOST)
        return false;
    w->lines++;
    jout_open(&o, NULL, '{');
    if (line->has_step)
        jout_int(&o, "step", line->step);
    for (size_t i = 0; i < line->count; i++)
        jout_real(&o, line->metrics[i].name, line->metrics[i].value); /* null: not a number */
    jout_close(&o, '}');
    buf_putc(&w->out, '\n');
    return true;
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
    memset(w, 0, sizeof(*w));
}
