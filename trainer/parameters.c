#include "trainer/parameters.h"

void parameters_open(struct trainer *t)
{
    parameters_close(t);
    t->packs = packed_open(&t->packed, &t->engine, t->formation.rank, t->formation.world_size);
}

void parameters_close(struct trainer *t)
{
    packed_release(&t->packed);
    t->packs = false;
}

bool parameters_are_packed(const struct trainer *t)
{
    return t->packs && (t->engine.step + 1) % t->spec->log_every != 0;
}

enum err_code parameters_exchange(struct trainer *t, struct err *e)
{
    struct coll_group *group = t->formation.group;
    packed_put(&t->packed, &t->engine);
    if (coll_gather(group, t->engine.grads.data, t->packed.offsets, e) || coll_join(group, e))
        return e->code;
    packed_take(&t->packed, &t->engine);
    return ERR_OK;
}

enum err_code parameters_complete(struct trainer *t, struct err *e)
{
    if (!t->engine.partial)
        return ERR_OK;
    if (sync_gather(t->formation.sync, e))
        return e->code;
    t->engine.partial = false;
    return ERR_OK;
}
