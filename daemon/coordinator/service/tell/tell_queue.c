#include "daemon/coordinator/service/tell/tell_queue.h"

#include <stdlib.h>

#include "base/mem.h"

bool tell_queue_due(const struct tell_queue *q, int64_t now)
{
    return q->waiting > 0 && !q->sent_id && now >= q->next_at;
}

struct tell_queue *tell_queue_first(struct tell_queue *const *queues, size_t count, int64_t now)
{
    struct tell_queue *first = NULL;
    for (size_t i = 0; i < count; i++)
        if (tell_queue_due(queues[i], now) && (!first || queues[i]->next_at < first->next_at))
            first = queues[i];
    return first;
}

int64_t tell_queue_wait(int failures)
{
    int64_t wait = TELL_FIRST_RETRY_MS;
    for (int i = 1; i < failures && wait < TELL_LONGEST_RETRY_MS; i++)
        wait *= 2;
    return wait < TELL_LONGEST_RETRY_MS ? wait : TELL_LONGEST_RETRY_MS;
}

/* The notice needs no further attempt: it was delivered or dropped. */
static void queue_advance(struct tell_queue *q, int64_t id)
{
    if (id > q->last_id) { /* otherwise it was dropped while it was being sent */
        q->last_id = id;
        if (q->waiting > 0)
            q->waiting--;
    }
    q->refusals = 0;
}

bool tell_queue_done(struct tell_queue *q, const struct tell_result *r, int64_t now, int64_t wall_ms)
{
    const int64_t id = q->sent_id;
    q->sent_id = 0;
    if (r->ok) {
        queue_advance(q, id);
        q->failures = 0;
        q->next_at = 0;
        q->delivered++;
        q->ok_ms = wall_ms;
        q->drop_said = false;
        return false;
    }
    q->failed++;
    q->failures++;
    q->error_ms = wall_ms;
    free(q->error);
    q->error = xstrdup(r->text);
    q->next_at = now + (r->retry_ms ? r->retry_ms : tell_queue_wait(q->failures));
    if (!r->refused || ++q->refusals < TELL_REFUSALS_MOST)
        return false;
    queue_advance(q, id);
    q->dropped++;
    return true;
}

void tell_queue_release(struct tell_queue *q)
{
    free(q->hook);
    free(q->error);
}
