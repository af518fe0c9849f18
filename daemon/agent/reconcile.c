#include "daemon/agent/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/agent/wish.h"

static const struct spawn_fact *known_find(const struct reconcile_input *in, int64_t job, int64_t spawn)
{
    for (size_t i = 0; i < in->count; i++)
        if (in->known[i]->job == job && in->known[i]->spawn == spawn)
            return in->known[i];
    return NULL;
}

static const Ddp__V1__SpawnWish *wished_find(const Ddp__V1__GroupWish *group, int64_t spawn)
{
    for (size_t i = 0; group && i < group->n_spawns; i++)
        if (group->spawns[i]->spawn == spawn)
            return group->spawns[i];
    return NULL;
}

static bool exit_is_wanted(const Ddp__V1__GroupWish *group, int64_t spawn)
{
    if (wished_find(group, spawn))
        return true;
    for (size_t i = 0; group && i < group->n_wanted_exits; i++)
        if (group->wanted_exits[i] == spawn)
            return true;
    return false;
}

bool reconcile_pending(const Ddp__V1__GroupWish *group, const Ddp__V1__SpawnWish *spawn)
{
    return spawn->stop == DDP__V1__STOP_MODE__STOP_NONE && !spawn->keep_only &&
           spawn->generation == group->generation;
}

static void actions_add(struct actions *out, struct action action)
{
    out->items = array_grow(out->items, out->count, &out->cap, sizeof(*out->items));
    out->items[out->count++] = action;
}

static void group_start_missing(const struct reconcile_input *in, const Ddp__V1__GroupWish *group,
                                struct actions *out)
{
    bool leased = in->last_ack > 0 && in->now < in->last_ack + group->lease_ms;

    /* A kept wish may be out of date. Without a lease the coordinator may count this node as lost and may
     * have started the job elsewhere. */
    if (!in->confirmed || !leased || !in->settled(in->ctx, group->job))
        return;
    for (size_t i = 0; i < group->n_spawns; i++) {
        const Ddp__V1__SpawnWish *spawn = group->spawns[i];

        /* While the wish cannot be saved, also refuse a worker that is to stop before it has started. So the coordinator learns that it
         * never will start. */
        const bool wanted =
            reconcile_pending(group, spawn) || (in->unsaved && spawn->stop != DDP__V1__STOP_MODE__STOP_NONE);
        if (!wanted || known_find(in, group->job, spawn->spawn))
            continue;
        actions_add(out, (struct action){.kind = in->unsaved ? ACTION_REFUSE : ACTION_START,
                                         .job = group->job,
                                         .spawn = spawn->spawn,
                                         .group = group,
                                         .wish = spawn});
    }
}

/* Decides about one spawn that is known: answer it, stop it, forget it, or leave it as it is. */
static void known_reconcile(const struct reconcile_input *in, const struct spawn_fact *known,
                            struct actions *out)
{
    const Ddp__V1__GroupWish *group = wish_group(in->wish, known->job);
    const Ddp__V1__SpawnWish *wished = wished_find(group, known->spawn);
    struct action action = {.job = known->job, .spawn = known->spawn};

    /* before the stop, which it says how to take */
    if (known->state != SPAWN_EXITED && wished && wished->answer)
        actions_add(
            out,
            (struct action){.kind = ACTION_ANSWER, .job = known->job, .spawn = known->spawn, .wish = wished});
    if (known->state == SPAWN_EXITED) {
        /* the coordinator has not committed its end yet, or the wish that says so may be lost again */
        if (exit_is_wanted(group, known->spawn) || in->unsaved)
            return;
        action.kind = ACTION_FORGET;
    } else if (!wished) {
        /* The coordinator counts it as dead and gives its slot away. Nobody waits for a snapshot or its
         * output. */
        action.kind = ACTION_STOP;
        action.mode = STOP_KILL;
    } else if (wished->stop != DDP__V1__STOP_MODE__STOP_NONE) {
        action.kind = ACTION_STOP;
        /* a mode that only a newer coordinator knows: the strongest one is safe */
        action.mode = wished->stop > DDP__V1__STOP_MODE__STOP_KILL ? STOP_KILL : (enum stop_mode)wished->stop;
        action.grace_ms = group->grace_ms;
        action.signal = group->stop_signal;
    } else {
        return;
    }
    actions_add(out, action);
}

void reconcile_wish(const struct reconcile_input *in, struct actions *out)
{
    if (!in->wish)
        return;
    for (size_t i = 0; i < in->wish->n_groups; i++)
        group_start_missing(in, in->wish->groups[i], out);
    for (size_t i = 0; i < in->count; i++)
        known_reconcile(in, in->known[i], out);
}

void actions_release(struct actions *a)
{
    free(a->items);
    memset(a, 0, sizeof(*a));
}
