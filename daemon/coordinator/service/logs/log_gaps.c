#include "daemon/coordinator/service/logs/log_gaps.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"

#define NAMED_MOST 8 /* ranks in a note */

void log_gaps_add(struct log_gaps *g, int rank, bool started)
{
    size_t at = g->count;

    while (at && g->list[at - 1].rank > rank) /* sorted; most come in order */
        at--;
    if (at && g->list[at - 1].rank == rank)
        return;
    g->list = array_grow(g->list, g->count, &g->cap, sizeof(*g->list));
    for (size_t i = g->count++; i > at; i--)
        g->list[i] = g->list[i - 1];
    g->list[at] = (struct log_gap){rank, started};
}

static size_t gaps_count(const struct log_gaps *g, bool started)
{
    size_t count = 0;

    for (size_t i = 0; i < g->count; i++)
        count += g->list[i].started == started;
    return count;
}

/* "rank 3", "ranks 0, 1 and 4", "ranks 0, 1, ... and 92 more" */
static void gaps_name_ranks(const struct log_gaps *g, bool started, size_t count, struct buf *out)
{
    const size_t named = count > NAMED_MOST ? NAMED_MOST : count;
    size_t done = 0;

    buf_printf(out, "rank%s ", text_plural((int64_t)count));
    for (size_t i = 0; i < g->count && done < named; i++)
        if (g->list[i].started == started) {
            buf_printf(out, "%s%d", text_separator(done, named, named < count ? ", " : " and "),
                       g->list[i].rank);
            done++;
        }
    if (named < count)
        buf_printf(out, " and %zu more", count - named);
}

char *log_gaps_note(const struct log_gaps *g, bool started, bool job_ended)
{
    const size_t count = gaps_count(g, started);
    struct buf text = {0};

    if (!count)
        return NULL;
    if (started)
        buf_puts(&text, count == 1 ? "the log of " : "the logs of ");
    gaps_name_ranks(g, started, count, &text);
    if (started)
        buf_puts(&text, count == 1 ? " has expired or was removed" : " have expired or were removed");
    else
        buf_puts(&text, job_ended    ? " did not start"
                        : count == 1 ? " has not started yet"
                                     : " have not started yet");
    return buf_steal(&text);
}

void log_gaps_release(struct log_gaps *g)
{
    free(g->list);
    *g = (struct log_gaps){0};
}
