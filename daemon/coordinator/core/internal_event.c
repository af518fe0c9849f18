#include "daemon/coordinator/core/internal_event.h"

#include <stdlib.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"

static struct internal_event *internal_event_add(struct core *core, enum internal_event_kind kind)
{
    core->internal =
        array_grow(core->internal, core->internal_count, &core->internal_cap, sizeof(*core->internal));
    struct internal_event *event = &core->internal[core->internal_count++];
    *event = (struct internal_event){.kind = kind};
    return event;
}

void raise_spawn_dead(struct core *core, const struct spawn *s)
{
    struct internal_event *event = internal_event_add(core, INTERNAL_SPAWN_DEAD);

    event->job = s->r.job;
    event->spawn = s->r.spawn;
}

static struct internal_event *raise_of_generation(struct core *core, enum internal_event_kind kind,
                                                  const struct generation *g)
{
    struct internal_event *event = internal_event_add(core, kind);

    event->job = g->r.job;
    event->generation = g->r.number;
    return event;
}

void raise_generation_ended(struct core *core, const struct generation *g, const char *why)
{
    raise_of_generation(core, INTERNAL_GENERATION_ENDED, g)->why = xstrdup(why);
}

void raise_generation_draining(struct core *core, const struct generation *g)
{
    raise_of_generation(core, INTERNAL_GENERATION_DRAINING, g);
}

void raise_generation_formed(struct core *core, const struct generation *g)
{
    raise_of_generation(core, INTERNAL_GENERATION_FORMED, g);
}

void raise_snapshot_committed(struct core *core, const struct spawn *s, int64_t step)
{
    struct internal_event *event = internal_event_add(core, INTERNAL_SNAPSHOT_COMMITTED);

    event->job = s->r.job;
    event->spawn = s->r.spawn;
    event->step = step;
}

void raise_job_ended(struct core *core, const struct job *job)
{
    internal_event_add(core, INTERNAL_JOB_ENDED)->job = job->r.id;
}

void raise_job_tuned(struct core *core, const struct job *job)
{
    internal_event_add(core, INTERNAL_JOB_TUNED)->job = job->r.id;
}

void raise_handover_asked(struct core *core, const struct job *job)
{
    internal_event_add(core, INTERNAL_HANDOVER_ASKED)->job = job->r.id;
}

void raise_node_moved(struct core *core, const struct node *node)
{
    internal_event_add(core, INTERNAL_NODE_MOVED)->node = xstrdup(node->r.name);
}

bool internal_event_take(struct core *core, struct internal_event *out)
{
    if (core->internal_first == core->internal_count) {
        core->internal_first = core->internal_count = 0; /* all are dispatched: the array is used anew */
        return false;
    }
    *out = core->internal[core->internal_first++];
    return true;
}

void internal_event_release(struct internal_event *event)
{
    free(event->node);
    free(event->why);
}
