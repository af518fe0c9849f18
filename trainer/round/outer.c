#include "trainer/round/outer.h"

#include "base/log.h"

struct sync_spec outer_spec(const struct trainer *t)
{
    struct sync_spec out = t->spec->sync;
    if (out.outer_auto && t->outer_lr > 0) {
        out.outer_lr = t->outer_lr;
        out.outer_momentum = t->outer_momentum;
    }
    return out;
}

void outer_put(const struct trainer *t, struct snapshot_place *out)
{
    if (t->sync.type != SYNC_DILOCO)
        return;
    out->outer_lr = t->sync.outer_lr;
    out->outer_momentum = t->sync.outer_momentum;
}

enum err_code outer_take(struct trainer *t, const struct snapshot_place *place, struct err *e)
{
    /* Values of a plain mean, or without momentum, belong to other arrays than this run has. */
    if (!(place->outer_lr > 0) || !(place->outer_momentum > 0))
        return ERR_OK;
    /* Keep the values also if the job file has its own. A coordinator with an older database may bring back a job
     * file without them, and then all ranks must use the same values. */
    t->outer_lr = place->outer_lr;
    t->outer_momentum = place->outer_momentum;
    if (!t->spec->sync.outer_auto)
        return ERR_OK;
    t->sync = outer_spec(t);
    return sync_tune(t->formation.sync, &t->sync, e);
}

void outer_begin(struct trainer *t)
{
    const struct sync_spec *s = &t->sync;
    if (t->spec->sync.type != SYNC_DILOCO)
        return;
    if (t->spec->sync.outer_auto && t->formation.rank == 0)
        log_info("outer_optimizer", "outer_lr=%g outer_momentum=%g warm=%lld from=%s", s->outer_lr,
                 s->outer_momentum, (long long)s->warm, t->outer_lr > 0 ? "snapshot" : "job");
    t->outer_lr = s->outer_lr;
    t->outer_momentum = s->outer_momentum;
}
