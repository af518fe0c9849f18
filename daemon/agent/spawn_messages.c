#include "daemon/agent/spawn_messages.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/reconcile.h"
#include "proto/rpc_spawn_fact.h"

#define REPORT_EVERY_MS 100
#define TAILS_MAX (1u << 20) /* bytes of stderr in one message: the coordinator accepts 4 MiB in all */

struct fact_list {
    Ddp__V1__SpawnFact **items;
    size_t count, cap, tail_bytes;
};

static void fact_list_release(struct fact_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        rpc_spawn_fact_release(list->items[i]);
        free(list->items[i]);
    }
    free(list->items);
}

static void fact_list_add(struct fact_list *list, const struct spawn_fact *fact)
{
    Ddp__V1__SpawnFact *message = xcalloc(1, sizeof(*message));
    size_t tail = fact->stderr_tail ? strlen(fact->stderr_tail) : 0;
    bool fits = list->tail_bytes + tail <= TAILS_MAX;

    rpc_spawn_fact_pack(fact, fits, message);
    list->tail_bytes += fits ? tail : 0;
    list->items = array_grow(list->items, list->count, &list->cap, sizeof(*list->items));
    list->items[list->count++] = message;
}

/* The first to end comes first: its stderr is the most likely to name the cause, and room for it is limited.
 */
static int known_by_end(const void *a, const void *b)
{
    const struct spawn_fact *x = *(const struct spawn_fact *const *)a;
    const struct spawn_fact *y = *(const struct spawn_fact *const *)b;
    int64_t x_end = x->state == SPAWN_EXITED ? x->ended_ms : INT64_MAX;
    int64_t y_end = y->state == SPAWN_EXITED ? y->ended_ms : INT64_MAX;

    return (x_end > y_end) - (x_end < y_end);
}

/* A spawn that is about to start must not be absent: the coordinator would take it for dead. */
static void fact_list_add_pending(struct agent *a, struct fact_list *list)
{
    const Ddp__V1__Wish *wish = a->wish.wish;

    for (size_t g = 0; wish && g < wish->n_groups; g++)
        for (size_t i = 0; i < wish->groups[g]->n_spawns; i++) {
            const Ddp__V1__GroupWish *group = wish->groups[g];
            const Ddp__V1__SpawnWish *s = group->spawns[i];

            if (reconcile_pending(group, s) && !supervisors_know(a->supervisors, group->job, s->spawn))
                fact_list_add(list, &(struct spawn_fact){
                                        .job = group->job, .spawn = s->spawn, .state = SPAWN_STARTING});
        }
}

/* False: no report is left, or the session does not accept one now. */
static bool reports_send_batch(struct agent *a)
{
    Ddp__V1__Report *items[REPORT_BATCH_COUNT];
    Ddp__V1__Reports batch;
    Ddp__V1__AgentUp up;
    struct err e;

    if (!a->reports.count)
        return false;
    report_queue_batch(&a->reports, &batch, items);
    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_REPORTS;
    up.reports = &batch;
    if (session_send(a->session, &up, &e))
        return false;
    report_queue_sent(&a->reports, &batch);
    return true;
}

/* Reports go first: the coordinator accepts none of a worker after its exit. */
void spawn_messages_send_facts(struct agent *a)
{
    CLEANUP(fact_list_release) struct fact_list list = {0};
    Ddp__V1__AgentUp up;
    Ddp__V1__Facts facts;
    const struct spawn_fact **known;
    struct err e;
    size_t count;

    if (!session_welcomed(a->session))
        return;
    while (reports_send_batch(a))
        ;
    known = supervisors_known(a->supervisors, &count);
    if (count) /* known is NULL without */
        qsort(known, count, sizeof(*known), known_by_end);
    for (size_t i = 0; i < count; i++)
        fact_list_add(&list, known[i]);
    fact_list_add_pending(a, &list);
    ddp__v1__facts__init(&facts);
    facts.epoch = a->wish.wish ? a->wish.wish->epoch : 0;
    facts.revision = a->wish.wish ? a->wish.wish->revision : 0;
    facts.spawns = list.items;
    facts.n_spawns = list.count;
    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_FACTS;
    up.facts = &facts;
    if (!session_send(a->session, &up, &e))
        a->facts_due = false; /* if not sent: tried again when the session is sendable or welcomed again */
    else if (e.code != ERR_RESOURCE_EXHAUSTED && e.code != ERR_UNAVAILABLE && e.code != ERR_CANCELLED)
        log_error("facts_not_sent", "why=%s", LOG_Q(e.msg));
    free(known);
}

int64_t spawn_messages_send_reports(struct agent *a, int64_t now)
{
    if (!a->reports.count || !session_welcomed(a->session))
        return INT64_MAX;
    if (now < a->reports_sent_ms + REPORT_EVERY_MS)
        return a->reports_sent_ms + REPORT_EVERY_MS;
    reports_send_batch(a);
    a->reports_sent_ms = now;
    return a->reports.count ? now + REPORT_EVERY_MS : INT64_MAX;
}
