#include "client/text/prefix.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define LINE_MAX_BYTES (16 << 20)

void prefixer_init(struct prefixer *p, bool wanted, bool colour)
{
    *p = (struct prefixer){.wanted = wanted, .colour = colour};
}

static struct prefix_stream *prefixer_stream(struct prefixer *p, int rank, bool standard_error)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->streams[i].rank == rank && p->streams[i].standard_error == standard_error)
            return &p->streams[i];
    p->streams = array_grow(p->streams, p->count, &p->cap, sizeof(*p->streams));
    p->streams[p->count] = (struct prefix_stream){.rank = rank, .standard_error = standard_error};
    return &p->streams[p->count++];
}

void prefixer_label(struct prefixer *p, int rank, bool standard_error, const char *label)
{
    struct prefix_stream *s = prefixer_stream(p, rank, standard_error);
    free(s->label);
    s->label = xstrdup(label);
}

static void prefixer_put_label(const struct prefixer *p, const struct prefix_stream *s, struct buf *out)
{
    static const int colours[] = {36, 33, 32, 35, 34, 31};
    CLEANUP(free_text) char *number = s->label ? NULL : xasprintf("[%d]", s->rank);
    const char *text = s->label ? s->label : number;
    if (!s->label && !p->wanted)
        return;
    if (p->colour)
        buf_printf(out, "\033[%dm%s\033[0m", colours[(unsigned)s->rank % ARRAY_LEN(colours)], text);
    else
        buf_puts(out, text);
    if (!s->label)
        buf_putc(out, ' ');
}

void prefixer_add(struct prefixer *p, int rank, bool standard_error, const char *data, size_t len,
                  struct buf *out)
{
    struct prefix_stream *s = prefixer_stream(p, rank, standard_error);
    CLEANUP(buf_release) struct buf clean = {0};
    if (p->filtered) {
        term_filter_add(&s->filter, data, len, &clean);
        data = clean.data;
        len = clean.len;
    }
    if (p->raw && !s->label) {
        buf_append(out, data, len);
        return;
    }
    while (len) {
        const char *end = memchr(data, '\n', len);
        size_t take = end ? (size_t)(end - data) + 1 : len;
        /* Without its end the line waits, unless it is too long: then it is cut here. */
        if (!end && s->line.len + take < LINE_MAX_BYTES) {
            buf_append(&s->line, data, take);
            return;
        }
        prefixer_put_label(p, s, out);
        if (s->line.len)
            buf_append(out, s->line.data, s->line.len);
        buf_append(out, data, take);
        if (!end)
            buf_putc(out, '\n');
        buf_clear(&s->line);
        data += take;
        len -= take;
    }
}

void prefixer_finish(struct prefixer *p, struct buf *out)
{
    for (size_t i = 0; i < p->count; i++) {
        struct prefix_stream *s = &p->streams[i];
        term_filter_finish(&s->filter, p->raw || s->line.len ? &s->line : out);
        if (!s->line.len)
            continue;
        if (p->raw &&
            !s->label) { /* bytes that the filter had kept back; raw output gets no extra line end */
            buf_append(out, s->line.data, s->line.len);
        } else {
            prefixer_put_label(p, s, out);
            buf_append(out, s->line.data, s->line.len);
            buf_putc(out, '\n');
        }
        buf_clear(&s->line);
    }
}

void prefixer_release(struct prefixer *p)
{
    for (size_t i = 0; i < p->count; i++) {
        free(p->streams[i].label);
        buf_release(&p->streams[i].line);
    }
    free(p->streams);
    *p = (struct prefixer){0};
}
