#ifndef DDP_DAEMON_COORDINATOR_CORE_INTERNAL_EVENT_H
#define DDP_DAEMON_COORDINATOR_CORE_INTERNAL_EVENT_H

#include "daemon/coordinator/core/model.h"

/* What one module of the core did that modules above it must follow. A module raises an internal event
 * instead of calling upwards; core.c dispatches the events in the order in which they were raised, after the
 * handler that raised them and before placement. Events name their objects by number, so an object that was
 * removed meanwhile is simply not found. */
enum internal_event_kind {
    INTERNAL_SPAWN_DEAD,          /* job, spawn */
    INTERNAL_GENERATION_ENDED,    /* job, generation, why */
    INTERNAL_GENERATION_DRAINING, /* job, generation */
    INTERNAL_GENERATION_FORMED,   /* job, generation */
    INTERNAL_SNAPSHOT_COMMITTED,  /* job, spawn, step */
    INTERNAL_JOB_ENDED,           /* job */
    INTERNAL_JOB_TUNED,           /* job: its job file has a new revision */
    INTERNAL_HANDOVER_ASKED,      /* job: its members are to wait between two steps, or not any more */
    INTERNAL_NODE_MOVED,          /* node: its state has changed */
};

struct internal_event {
    enum internal_event_kind kind;
    int64_t job, generation, spawn, step;
    char *node, *why; /* owned */
};

void raise_spawn_dead(struct core *core, const struct spawn *s);
void raise_generation_ended(struct core *core, const struct generation *g, const char *why);
void raise_generation_draining(struct core *core, const struct generation *g);
void raise_generation_formed(struct core *core, const struct generation *g);
void raise_snapshot_committed(struct core *core, const struct spawn *s, int64_t step);
void raise_job_ended(struct core *core, const struct job *job);
void raise_job_tuned(struct core *core, const struct job *job);
void raise_handover_asked(struct core *core, const struct job *job);
void raise_node_moved(struct core *core, const struct node *node);

/* Takes the oldest event; the caller releases it. Returns false if there is none. */
bool internal_event_take(struct core *core, struct internal_event *out);
void internal_event_release(struct internal_event *event);

#endif
