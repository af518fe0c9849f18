#include "daemon/coordinator/core/snapshots/pending_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void pending_parts_forget(struct job *job)
{
    struct pending_parts *p = &job->parts;

    free(p->there);
    free(p->digest);
    free(p->path);
    strv_free(p->nodes);
    *p = (struct pending_parts){0};
}

static bool parts_are_of(const struct pending_parts *p, int64_t generation, int64_t step)
{
    return p->generation == generation && p->step == step;
}

/* There is one at a time: ranks begin a snapshot only when all have ended the one before. NULL: a later one has
 * begun, which a late call about this one must not replace. */
static struct pending_parts *parts_begin(struct job *job, int64_t generation, int64_t step)
{
    if (job->parts.generation == generation && step < job->parts.step)
        return NULL;
    if (!parts_are_of(&job->parts, generation, step)) {
        pending_parts_forget(job);
        job->parts = (struct pending_parts){.generation = generation, .step = step, .failed_rank = -1};
    }
    return &job->parts;
}

static enum err_code parts_check(const struct pending_parts *p, const struct spawn *s,
                                 const struct core_event *event, struct err *e)
{
    const char *digest = event->snapshot.digest;

    if (event->snapshot.parts != s->rank->generation->r.world_size)
        return err_set(e, ERR_INVALID_ARGUMENT, "a snapshot of %d parts in a world of %d ranks",
                       event->snapshot.parts, s->rank->generation->r.world_size);
    if (p->failed_rank >= 0)
        return err_set(e, ERR_ABORTED, "rank %d could not write its part of the snapshot of step %" PRId64,
                       p->failed_rank, p->step);
    if (*digest && p->digest && strcmp(digest, p->digest) != 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "step %" PRId64 " was committed with digest %s, not %s",
                       p->step, p->digest, digest);
    return ERR_OK;
}

enum err_code pending_parts_take(struct job *job, const struct spawn *s, const struct core_event *event,
                                 bool *complete, struct err *e)
{
    struct pending_parts *p = parts_begin(job, event->snapshot.generation, event->snapshot.step);

    if (!p)
        return err_set(e, ERR_ABORTED, "the ranks have begun a later snapshot than that of step %" PRId64,
                       event->snapshot.step);
    if (parts_check(p, s, event, e))
        return e->code;
    if (!p->there)
        p->there = xcalloc((size_t)event->snapshot.parts, sizeof(*p->there));
    if (*event->snapshot.digest && !names_contain(p->nodes, s->r.node)) {
        if (!p->digest) {
            p->digest = xstrdup(event->snapshot.digest);
            p->path = xstrdup(event->snapshot.path);
        }
        p->nodes = strv_append(p->nodes, s->r.node);
    }
    if (!p->there[s->rank->r.rank]) {
        p->there[s->rank->r.rank] = true;
        p->count++;
        p->bytes += event->snapshot.bytes;
    }
    *complete = p->count == event->snapshot.parts && p->digest;
    return ERR_OK;
}

void pending_parts_failed(struct job *job, const struct spawn *s, int64_t step)
{
    struct pending_parts *p = parts_begin(job, s->rank->generation->r.number, step);

    if (p)
        p->failed_rank = s->rank->r.rank;
}
