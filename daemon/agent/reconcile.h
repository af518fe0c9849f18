#ifndef DDP_DAEMON_AGENT_RECONCILE_H
#define DDP_DAEMON_AGENT_RECONCILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/protocol/control.h"
#include "proto/ddp.pb-c.h"

/* Compares the wish with the facts, as a pure function: the result is what to do now so that the node becomes
 * what the coordinator wants. The same input always gives the same actions, and every action may be repeated.
 */

struct reconcile_input {
    const Ddp__V1__Wish *wish; /* NULL: there is no wish yet, so there is nothing to do */
    /* The wish came in the newest session. An older one may name spawns that count as dead by now. */
    bool confirmed;
    /* It is not on disk (wish.h): what it would start is refused, and nothing is forgotten. */
    bool unsaved;
    const struct spawn_fact *const *known; /* the facts of all spawns on this node */
    size_t count;
    /* The supervisor of the job has named all its spawns. Before that a spawn may run that is not known yet,
     * so nothing is started. */
    bool (*settled)(void *ctx, int64_t job);
    void *ctx;
    int64_t now; /* CLOCK_BOOTTIME ms */
    /* CLOCK_BOOTTIME ms: when the last acknowledged heartbeat was sent; 0: none since the start. */
    int64_t last_ack;
};

enum action_kind { ACTION_START, ACTION_REFUSE, ACTION_STOP, ACTION_FORGET, ACTION_ANSWER };
struct action {
    enum action_kind kind;
    int64_t job, spawn;
    enum stop_mode mode;             /* stop */
    int64_t grace_ms;                /* stop */
    int signal;                      /* stop: the signal to send first; 0: SIGTERM */
    const Ddp__V1__GroupWish *group; /* start, refuse; borrowed from the wish */
    const Ddp__V1__SpawnWish *wish;  /* start, refuse, answer; borrowed from the wish */
};
struct actions {
    struct action *items;
    size_t count, cap;
};

void reconcile_wish(const struct reconcile_input *in, struct actions *out); /* appends; starts first */
void actions_release(struct actions *a);

/* Whether the wish wants this spawn to run. Such a spawn is reported as starting while nothing is known of
 * it, because the coordinator would count an absent spawn as dead. */
bool reconcile_pending(const Ddp__V1__GroupWish *group, const Ddp__V1__SpawnWish *spawn);

#endif
