#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/service/logs/log_stream.h"
#include "daemon/coordinator/service/logs/log_tails.h"
#include "daemon/coordinator/service/service_state.h"

/* Answers requests for logs that no node sends, with the coordinator's copies and with notes. */

static struct log_absence *log_stream_absence(struct log_stream *x, const char *node)
{
    for (size_t i = 0; i < x->absent_count; i++)
        if (strcmp(x->absent[i].name, node) == 0)
            return &x->absent[i].parts;
    x->absent = array_grow(x->absent, x->absent_count, &x->absent_cap, sizeof *x->absent);
    x->absent[x->absent_count] = (struct log_absent_node){.name = xstrdup(node)};
    return &x->absent[x->absent_count++].parts;
}

void log_stream_tell_absent(struct log_stream *x)
{
    for (size_t i = 0; i < x->absent_count; i++) {
        const char *name = x->absent[i].name;
        const struct node_record *node = core_node(x->service->core, name);
        const char *why = !node                      ? "is no longer known"
                          : node->state == NODE_LOST ? "is lost"
                          : node->state == NODE_LEFT ? "has left the cluster"
                                                     : "cannot be reached";
        CLEANUP(free_text) char *note = log_absence_note(&x->absent[i].parts, name, why);
        log_stream_note(x, -1, 0, note);
        x->incomplete = x->incomplete || !x->absent[i].parts.copies;
        free(x->absent[i].name);
    }
    x->absent_count = 0;
}

void log_read_take_copy(struct log_read *r)
{
    struct log_stream *x = r->stream;
    const struct log_tails *tails = x->service->log_tails;
    const struct log_tail *tail = log_tails_find(tails, x->job, r->spawn, r->standard_error);
    struct log_tail_choice choice = {.offset = r->offset, .pattern = x->pattern};
    if (!r->begun) {
        choice.tail_bytes = x->tail_bytes;
        choice.tail_lines = x->tail_lines;
        choice.since_ms = x->since_ms;
    }
    bool whole = true; /* if the node has other copies, nothing was written to a log without one */
    log_absence_add(log_stream_absence(x, r->node), tail, tail ? log_tails_age(tails, tail) : 0);
    if (tail && !log_tail_read(tail, &choice, &r->held, &whole, &x->search_ns)) {
        whole = false;
        log_stream_note(
            x, r->rank, r->generation,
            "the search of the coordinator's copies took too long and is incomplete: use a simpler expression");
    }
    x->incomplete = x->incomplete || !whole;
    if (tail && tail->offset + (int64_t)tail->data.len > r->offset)
        r->offset = tail->offset + (int64_t)tail->data.len;
    r->last = true;
    r->ended = !log_piece_left(&r->held);
}

void log_stream_explain(struct log_stream *x)
{
    const bool ended = log_stream_job_ended(x);
    CLEANUP(free_text) char *absent = log_gaps_note(&x->gaps, false, ended);
    CLEANUP(free_text) char *gone = log_gaps_note(&x->gaps, true, ended);
    if (absent)
        log_stream_note(x, -1, 0, absent);
    if (gone)
        log_stream_note(x, -1, 0, gone);
    x->incomplete = x->incomplete || gone;
    log_gaps_release(&x->gaps);
    if (!x->passed && !x->told && !ended && !*x->grep && !x->since_ms && x->standard_out && x->standard_error)
        log_stream_note(x, -1, 0, "nothing has been written yet");
}
