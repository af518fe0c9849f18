#ifndef DDP_DAEMON_SUPERVISOR_AGENT_LINK_H
#define DDP_DAEMON_SUPERVISOR_AGENT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/report_reader.h"
#include "daemon/supervisor/spawn.h"

/* What a supervisor says to its agent (daemon/supervisor/protocol/control.h): hello, what became of each spawn, what
 * workers reported, synced. Nothing here waits: while the agent's queue is full the rest is kept, reports
 * within limits.
 */
struct agent_link {
    int fd;           /* -1: there is no agent */
    bool blocked;     /* its queue is full: wait until it is writable */
    bool greet, sync; /* hello, synced are still to be said */
    struct outbox outbox;
};

void agent_link_attach(struct agent_link *t,
                       int fd); /* takes it; all is said anew, once the spawns are dirty */
void agent_link_detach(struct agent_link *t);
void agent_link_release(struct agent_link *t);

/* Says what there is to say. False: the agent is gone, detach. */
MUST_CHECK bool agent_link_tell(struct agent_link *t, const struct spawn_site *site,
                                struct spawn *const *spawns, size_t count);
/* Takes what the spawn has reported, at most `limit` bytes of its pipe, for the next agent_link_tell. */
void agent_link_take_reports(struct agent_link *t, struct spawn *s, size_t limit);

#endif
