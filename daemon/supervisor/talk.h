#ifndef DDP_DAEMON_SUPERVISOR_TALK_H
#define DDP_DAEMON_SUPERVISOR_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/report.h"
#include "daemon/supervisor/spawn.h"

/* What a supervisor says to its agent (daemon/supervisor/protocol/control.h): hello, what became of each spawn, what
 * workers reported, synced. Nothing here waits: while the agent's queue is full the rest is kept, reports
 * within limits.
 */
struct talk {
    int fd;           /* -1: there is no agent */
    bool blocked;     /* its queue is full: wait until it is writable */
    bool greet, sync; /* hello, synced are still to be said */
    struct outbox outbox;
};

void talk_attach(struct talk *t, int fd); /* takes it; all is said anew, once the spawns are dirty */
void talk_detach(struct talk *t);
void talk_release(struct talk *t);

/* Says what there is to say. False: the agent is gone, detach. */
MUST_CHECK bool talk_tell(struct talk *t, const struct spawn_site *site, struct spawn *const *spawns,
                          size_t count);
/* Takes what the spawn has reported, at most `limit` bytes of its pipe, for the next talk_tell. */
void talk_take_reports(struct talk *t, struct spawn *s, size_t limit);

#endif
