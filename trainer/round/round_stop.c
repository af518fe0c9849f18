#include "trainer/round/round_stop.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/member/link/watch.h"
#include "trainer/signals.h"

/* A round that ends so soon ends first: then ranks have the least of their own to keep. */
#define REST_NS 1000000000

struct stop_word {
    float wanted, asked, signal; /* no padding: it goes to other ranks */
};

bool round_stop_meets(const struct trainer *t)
{
    return !t->sync.every_ms && t->sync.every > 1 && !t->sync.overlap && !t->sync.quorum &&
           !sync_votes_each_step(t->formation.sync);
}

bool round_stop_wanted(const struct trainer *t, const struct step *s, int64_t step_ns)
{
    if (s->tail[TAIL_STOP] <= 0.0f && s->tail[TAIL_SIGNAL] <= 0.0f)
        return false;
    const double left = (double)sync_steps_after_next(t->formation.sync);
    return round_stop_meets(t) && left * (double)step_ns > REST_NS;
}

enum err_code round_stop_meet(struct trainer *t, bool wanted, float *tail, struct err *e)
{
    const struct formation *f = &t->formation;
    const struct stop_word mine = {
        .wanted = wanted, .asked = link_stop_asked(t->link), .signal = (float)trainer_stop_signal};
    struct stop_word *all = xcalloc((size_t)f->world_size, sizeof(*all));
    enum err_code code = coll_allgather(f->group, &mine, sizeof(mine), all, e);
    for (int r = 0; !code && r < f->world_size; r++)
        t->stopped_within |= all[r].wanted > 0.0f;
    for (int r = 0; t->stopped_within && r < f->world_size; r++) {
        tail[TAIL_STOP] += all[r].asked;
        tail[TAIL_SIGNAL] += all[r].signal;
    }
    free(all);
    return code;
}

enum err_code round_stop_meet_to_exchange(struct trainer *t, bool wanted, float *tail, struct err *e)
{
    const int64_t began = clock_mono_ns();
    if (round_stop_meet(t, wanted, tail, e))
        return e->code;
    if (!t->stopped_within)
        sync_add_wait(t->formation.sync, clock_mono_ns() - began);
    return ERR_OK;
}
