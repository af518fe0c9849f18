#ifndef DDP_DAEMON_AGENT_RECONCILE_H
#define DDP_DAEMON_AGENT_RECONCILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/protocol/control.h"
#include "proto/ddp.pb-c.h"

/* Wish against fact, as a pure function: what to do now so that the node becomes what was wished. Calling it
 * again with the same input gives the same actions, and every action may be repeated. */

struct reconcile_input {
    const Ddp__V1__Wish *wish; /* NULL: none yet, then nothing is done */
    bool confirmed; /* came in the newest session; an older one may name spawns that count as dead by now */
    const struct spawn_fact *const *known; /* of all spawns here, each with its job */
    size_t count;
    /* A job whose supervisor has not said all yet may run what is not known: nothing new is started there. */
    bool (*settled)(void *ctx, int64_t job);
    void *ctx;
    int64_t now, last_ack; /* CLOCK_BOOTTIME ms; 0: no word from the coordinator since this agent started */
};

enum action_kind { ACTION_START, ACTION_STOP, ACTION_FORGET };
struct action {
    enum action_kind kind;
    int64_t job, spawn;
    enum stop_mode mode; /* stop */
    int64_t grace_ms;
    int signal;                      /* instead of SIGTERM, 0: that */
    const Ddp__V1__GroupWish *group; /* start; borrowed from the wish */
    const Ddp__V1__SpawnWish *wish;
};
struct actions {
    struct action *items;
    size_t count, cap;
};

void reconcile(const struct reconcile_input *in, struct actions *out); /* appends; starts first */
void actions_release(struct actions *a);

/* Spawns that the wish wants and that nothing is known of yet: reported as starting, since absence would mean
 * that they have ended. */
bool reconcile_pending(const Ddp__V1__GroupWish *group, const Ddp__V1__SpawnWish *spawn);

#endif
